{{/* What no schema can say: values that do not go together. */}}
{{- define "warmpath.validate" -}}
{{- if .Values.nats.embedded.enabled -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "nats.embedded.enabled: one picker serves NATS to all workers, so autoscaling.enabled must be false; for more replicas run a NATS server and set nats.url" -}}
{{- else if gt (int .Values.replicaCount) 1 -}}
{{- fail (printf "nats.embedded.enabled: one picker serves NATS to all workers, so replicaCount must be 1, not %d; for more replicas run a NATS server and set nats.url" (int .Values.replicaCount)) -}}
{{- else if .Values.nats.url -}}
{{- fail "nats.embedded.enabled and nats.url are both set; keep nats.url where there is a NATS server" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled would read all metrics twice; keep one of the two" -}}
{{- end -}}
{{- if and .Values.extProcTLS.enabled (has .Values.gateway.preset (list "agentgateway" "kgateway" "envoyGateway" "envoyAIGateway")) -}}
{{- fail (printf "extProcTLS.enabled: gateway.preset %s speaks to pickers without TLS; turn extProcTLS off" .Values.gateway.preset) -}}
{{- end -}}
{{- if and .Values.inferencePool.create (not .Values.inferencePool.matchLabels) -}}
{{- fail "inferencePool.create: name the labels of the pool's pods in inferencePool.matchLabels" -}}
{{- end -}}
{{- if and .Values.httpRoute.create (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.create: name the Gateway in httpRoute.parentRefs, such as [{name: my-gateway}]" -}}
{{- end -}}
{{- if .Values.config.discovery.kubernetes.pool -}}
{{- fail "config.discovery.kubernetes.pool: set inferencePool.name instead, so that the Role and the pool fit" -}}
{{- end -}}
{{- $t := .Values.tokenizer -}}
{{- if and (eq $t.source "pvc") (not $t.pvc.claimName) -}}
{{- fail "tokenizer.source pvc: name the claim in tokenizer.pvc.claimName" -}}
{{- else if and (eq $t.source "huggingFace") (not $t.huggingFace.repository) -}}
{{- fail "tokenizer.source huggingFace: name the repository in tokenizer.huggingFace.repository, as organisation/name" -}}
{{- else if and (eq $t.source "ociVolume") (not $t.ociVolume.reference) -}}
{{- fail "tokenizer.source ociVolume: name the image in tokenizer.ociVolume.reference" -}}
{{- end -}}
{{- if and .Values.config.discovery.kubernetes.selector (or .Values.inferencePool.create .Values.routingPolicy.create .Values.httpRoute.create) -}}
{{- fail "config.discovery.kubernetes.selector is for clusters without InferencePool; turn off inferencePool.create, httpRoute.create and routingPolicy.create, or remove the selector" -}}
{{- end -}}
{{- $selector := default dict .Values.config.discovery.kubernetes.selector -}}
{{- if and $selector.namespace (ne $selector.namespace .Release.Namespace) -}}
{{- fail (printf "config.discovery.kubernetes.selector.namespace: the Role is for namespace %s; install the release in %s" .Release.Namespace $selector.namespace) -}}
{{- end -}}
{{- if and (eq .Values.gateway.preset "standaloneEnvoy") (eq .Values.inferencePool.failureMode "FailOpen") (not (or .Values.gateway.standaloneEnvoy.matchLabels .Values.inferencePool.matchLabels)) -}}
{{- fail "gateway.preset standaloneEnvoy with inferencePool.failureMode FailOpen has to know the workers: set gateway.standaloneEnvoy.matchLabels" -}}
{{- end -}}
{{- $drain := include "warmpath.seconds" (default "30s" .Values.config.server.drainTimeout | toString) | int -}}
{{- if le (include "warmpath.gracePeriod" . | int) (add $drain .Values.preStopSleepSeconds | int) -}}
{{- fail (printf "terminationGracePeriodSeconds must be above config.server.drainTimeout and preStopSleepSeconds together (%d s), or 0" (add $drain .Values.preStopSleepSeconds)) -}}
{{- end -}}
{{- end -}}
