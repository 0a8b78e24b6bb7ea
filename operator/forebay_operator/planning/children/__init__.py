"""The children of an InferenceService: functions that build manifests, none that decides."""
