{{/* The pod of a picker. */}}
{{- define "warmpath.pod" -}}
{{- $ports := fromYaml (include "warmpath.ports" .) -}}
metadata:
  annotations:
    checksum/config: {{ include "warmpath.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels: {{- toYaml (merge (fromYaml (include "warmpath.labels" (dict "root" . "component" "picker"))) .Values.podLabels) | nindent 4 }}
spec:
  serviceAccountName: {{ include "warmpath.serviceAccountName" . }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "warmpath.gracePeriod" . }}
  {{- with include "warmpath.imagePullSecrets" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with include "warmpath.placement" . }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
  - name: epp
    image: {{ include "warmpath.image" (dict "root" . "image" .Values.image) | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
    - --config=/etc/warmpath/config/config.yaml
    - --log-format=json
    {{- with .Values.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    - name: POD_IP
      valueFrom: {fieldRef: {fieldPath: status.podIP}}
    {{- with include "warmpath.memoryLimit" . }}
    - name: GOMEMLIMIT
      value: {{ . | quote }}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - {name: grpc-ext-proc, containerPort: {{ $ports.extProc }}}
    - {name: grpc-health, containerPort: {{ $ports.health }}}
    - {name: http-metrics, containerPort: {{ $ports.metrics }}}
    - {name: recovery, containerPort: {{ $ports.recovery }}}
    {{- if .Values.nats.embedded.enabled }}
    - {name: nats, containerPort: {{ .Values.nats.embedded.service.port }}}
    {{- end }}
    {{- range $name := list "startupProbe" "livenessProbe" "readinessProbe" }}
    {{- with get $.Values $name }}
    {{ $name }}: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- if .Values.preStopSleepSeconds }}
    lifecycle:
      preStop: {sleep: {seconds: {{ .Values.preStopSleepSeconds }}}}
    {{- end }}
    {{- with .Values.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext: {{- toYaml .Values.securityContext | nindent 6 }}
    volumeMounts: {{- include "warmpath.mounts" . | nindent 4 }}
  volumes: {{- include "warmpath.volumes" . | nindent 2 }}
{{- end -}}

{{- define "warmpath.placement" -}}
{{- $placement := dict -}}
{{- $selector := dict "matchLabels" (fromYaml (include "warmpath.selectorLabels" (dict "root" . "component" "picker"))) -}}
{{- $spread := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $spread = append $spread (merge (deepCopy .) (dict "labelSelector" $selector)) -}}
{{- end -}}
{{- if $spread -}}{{- $_ := set $placement "topologySpreadConstraints" $spread -}}{{- end -}}
{{- range $name := list "nodeSelector" "tolerations" "affinity" -}}
{{- with get $.Values $name -}}{{- $_ := set $placement $name . -}}{{- end -}}
{{- end -}}
{{- if $placement -}}{{- toYaml $placement -}}{{- end -}}
{{- end -}}

{{- define "warmpath.mounts" -}}
- {name: config, mountPath: /etc/warmpath/config, readOnly: true}
{{- range fromYamlArray (include "warmpath.secrets" .) }}
- {name: {{ include "warmpath.secretVolume" . }}, mountPath: {{ printf "/etc/warmpath/secrets/%s" . | quote }}, readOnly: true}
{{- end }}
{{- if has .Values.tokenizer.source (list "pvc" "ociVolume") }}
- {name: model, mountPath: /etc/warmpath/model, readOnly: true}
{{- else if eq .Values.tokenizer.source "huggingFace" }}
- {name: model-cache, mountPath: /var/cache/warmpath}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "warmpath.volumes" -}}
- name: config
  configMap: {name: {{ include "warmpath.fullname" . }}}
{{- range fromYamlArray (include "warmpath.secrets" .) }}
- name: {{ include "warmpath.secretVolume" . }}
  secret: {secretName: {{ . | quote }}, optional: true} # the picker says what is missing
{{- end }}
{{- if eq .Values.tokenizer.source "pvc" }}
- name: model
  persistentVolumeClaim: {claimName: {{ .Values.tokenizer.pvc.claimName | quote }}, readOnly: true}
{{- else if eq .Values.tokenizer.source "ociVolume" }}
- name: model
  image: {reference: {{ .Values.tokenizer.ociVolume.reference | quote }}, pullPolicy: {{ .Values.tokenizer.ociVolume.pullPolicy }}}
{{- else if eq .Values.tokenizer.source "huggingFace" }}
- name: model-cache
  {{- if .Values.tokenizer.huggingFace.cacheClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.tokenizer.huggingFace.cacheClaim | quote }}}
  {{- else }}
  emptyDir: {sizeLimit: 1Gi}
  {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The name of a Secret's volume: a name of a Secret may be longer and have dots. */}}
{{- define "warmpath.secretVolume" -}}
{{- printf "secret-%s" (sha256sum . | trunc 10) -}}
{{- end -}}
