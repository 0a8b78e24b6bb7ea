{{/* A role with its binding to the operator's account, of a dict: context, kind (Role or ClusterRole), name, namespace, rules. */}}
{{- define "forebay.bound" -}}
{{- $place := eq .kind "Role" | ternary (printf "\n  namespace: %s" .namespace) "" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}{{ $place }}
  labels: {{- include "forebay.labels" .context | nindent 4 }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}{{ $place }}
  labels: {{- include "forebay.labels" .context | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - {kind: ServiceAccount, name: {{ include "forebay.account" .context }}, namespace: {{ .context.Release.Namespace }}}
{{- end -}}
