{{/*
What the operator may do, and nothing else: no Secrets, no wildcard, no finalizers, no spec of an InferenceService.
A component test compares these rules with the requests that the operator is seen to make.
*/}}

{{/* In each namespace that it serves. */}}
{{- define "forebay.rules.namespaced" -}}
- apiGroups: [forebay.dev]
  resources: [inferenceservices]
  verbs: [get, list, watch]
- apiGroups: [forebay.dev]
  resources: [inferenceservices/status, vramquotas/status]
  verbs: [patch]
- apiGroups: [forebay.dev]
  resources: [vramquotas]
  verbs: [list, watch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  # patch writes one annotation, controller.kubernetes.io/pod-deletion-cost; delete ends one that backs off and never served
  resources: [pods]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [resourcequotas] # while one refuses pods, to see when it has room
  verbs: [list]
- apiGroups: [""]
  resources: [events] # warnings about a service's own objects, while something hangs
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* Of the cluster itself, with rbac.nodes: without them, services must say vram.gpuMemory. */}}
{{- define "forebay.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
- apiGroups: [resource.k8s.io]
  resources: [resourceslices] # what DRA drivers say of GPUs, for nodes without labels
  verbs: [list, watch]
{{- end -}}

{{/* In its own namespace: the Lease by which one of its replicas works and the others stand by. */}}
{{- define "forebay.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [forebay-operator]
  verbs: [get, update]
{{- end -}}
