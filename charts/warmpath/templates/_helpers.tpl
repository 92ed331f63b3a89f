{{/* The name of the chart. */}}
{{- define "warmpath.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all objects. */}}
{{- define "warmpath.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "warmpath.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "warmpath.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "warmpath.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The ClusterRole for nodes: one for each release of the cluster. */}}
{{- define "warmpath.nodesRole" -}}
{{- printf "%s-%s-nodes" .Release.Namespace (include "warmpath.fullname" .) -}}
{{- end -}}

{{/* The InferencePool that is served. */}}
{{- define "warmpath.pool" -}}
{{- default .Release.Name .Values.inferencePool.name -}}
{{- end -}}

{{/* The labels that select pods of one component: dict root, component. */}}
{{- define "warmpath.selectorLabels" -}}
app.kubernetes.io/name: {{ include "warmpath.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The labels of objects: dict root, component. */}}
{{- define "warmpath.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $labels := dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/part-of" "warmpath" "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart -}}
{{- toYaml (merge (fromYaml (include "warmpath.selectorLabels" .)) $labels .root.Values.commonLabels) -}}
{{- end -}}

{{/* An image: dict root, image. The digest wins over the tag. */}}
{{- define "warmpath.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "warmpath.imagePullSecrets" -}}
{{- $list := list -}}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets -}}
{{- $list = append $list (dict "name" .) -}}
{{- end -}}
{{- if $list -}}
imagePullSecrets:
{{- toYaml $list | nindent 0 }}
{{- end -}}
{{- end -}}

{{/* The port of an address such as :9002. */}}
{{- define "warmpath.port" -}}
{{- $port := regexFind "[0-9]+$" . -}}
{{- if or (eq $port "") (eq $port "0") -}}
{{- fail (printf "config.server: %q has no fixed port; write :9002 or another" .) -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{- define "warmpath.ports" -}}
{{- $server := .Values.config.server -}}
extProc: {{ include "warmpath.port" (default ":9002" $server.extProcAddress) }}
health: {{ include "warmpath.port" (default ":9003" $server.healthAddress) }}
metrics: {{ include "warmpath.port" (default ":9090" $server.metricsAddress) }}
recovery: {{ include "warmpath.port" (default ":9004" $server.recoveryAddress) }}
{{- end -}}

{{/* A duration of Go such as 1m30s, in seconds, rounded up. */}}
{{- define "warmpath.seconds" -}}
{{- $sum := 0.0 -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 "us" 0.000001 "µs" 0.000001 "ns" 0.000000001 -}}
{{- range regexFindAll "[0-9.]+(h|ms|m|s|us|µs|ns)" . -1 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $sum = addf $sum (mulf (float64 $number) (get $units (trimPrefix $number .))) -}}
{{- end -}}
{{- ceil $sum | int -}}
{{- end -}}

{{- define "warmpath.gracePeriod" -}}
{{- if .Values.terminationGracePeriodSeconds -}}
{{- .Values.terminationGracePeriodSeconds | int -}}
{{- else -}}
{{- $drain := include "warmpath.seconds" (default "30s" .Values.config.server.drainTimeout | toString) -}}
{{- add .Values.preStopSleepSeconds $drain 15 -}}
{{- end -}}
{{- end -}}

{{/* 90% of the memory limit, for GOMEMLIMIT; empty without a limit. */}}
{{- define "warmpath.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (default dict .Values.resources) | toString -}}
{{- if $limit -}}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $number := regexFind "^[0-9.]+" $limit -}}
{{- $unit := trimPrefix $number $limit -}}
{{- if or (eq $number "") (not (hasKey $units $unit)) -}}
{{- fail (printf "resources.limits.memory: %q is no amount of memory; write 4Gi or the like" $limit) -}}
{{- end -}}
{{- printf "%dMiB" (divf (mulf (float64 $number) (get $units $unit) 0.9) 1048576.0 | floor | int64) -}}
{{- end -}}
{{- end -}}

{{/* How many pickers there may be at once. */}}
{{- define "warmpath.replicas" -}}
{{- ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled | int -}}
{{- end -}}

{{/* The Secrets that are mounted, each once, as a list in YAML. */}}
{{- define "warmpath.secrets" -}}
{{- $list := .Values.extraSecrets -}}
{{- $list = append $list .Values.nats.existingSecret -}}
{{- if .Values.nats.tls.enabled -}}
{{- $list = append $list .Values.nats.tls.existingSecret -}}
{{- end -}}
{{- if eq .Values.tokenizer.source "huggingFace" -}}
{{- $list = append $list .Values.tokenizer.tokenSecret.name -}}
{{- end -}}
{{- if .Values.extProcTLS.enabled -}}
{{- $list = append $list .Values.extProcTLS.existingSecret -}}
{{- end -}}
{{- toYaml (compact $list | uniq) -}}
{{- end -}}
