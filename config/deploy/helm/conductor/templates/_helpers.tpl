{{- define "conductor.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "conductor.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "conductor.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "conductor.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "conductor.selector" -}}
app.kubernetes.io/name: {{ include "conductor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "conductor.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "conductor.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "conductor.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "conductor.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "conductor.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "conductor.policySources" -}}
{{- $sources := list }}
{{- range list .Values.policies.configMap .Values.policies.persistentVolumeClaim .Values.policies.image }}
{{- if . }}{{ $sources = append $sources . }}{{ end }}
{{- end }}
{{- if gt (len $sources) 1 }}
{{- fail "policies: name at most one of configMap, persistentVolumeClaim and image" }}
{{- end }}
{{- len $sources }}
{{- end }}
