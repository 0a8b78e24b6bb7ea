{{/* The operator's name, of every object that is its own: RELEASE-operator. */}}
{{- define "forebay.name" -}}
{{- .Values.fullnameOverride | default (printf "%s-operator" .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What the operator's pods are selected by; it may never change within a release. */}}
{{- define "forebay.selector" -}}
app.kubernetes.io/name: {{ include "forebay.name" . }}
{{- end -}}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: forebay
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "forebay.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "forebay.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* An image's full name, of (list . "operator"): a digest counts before a tag. */}}
{{- define "forebay.image" -}}
{{- $context := index . 0 -}}
{{- $which := index . 1 -}}
{{- $image := index $context.Values.image $which -}}
{{- $registry := required "image.registry is empty: set it to where your images lie, such as registry.example.com/ml; the chart's README says how they are built and pushed" $context.Values.image.registry -}}
{{- $name := printf "%s/%s" ($registry | trimSuffix "/") $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name ($image.tag | default $context.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
