{{/* What no schema can say: values that do not go together. */}}
{{- define "warmpath.validate" -}}
{{- include "warmpath.validate.names" . -}}
{{- include "warmpath.validate.ports" . -}}
{{- include "warmpath.validate.nats" . -}}
{{- include "warmpath.validate.embedded" . -}}
{{- include "warmpath.validate.signIn" . -}}
{{- include "warmpath.validate.nodes" . -}}
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
{{- if and (ne $t.source "none") (dig "tokenizer" "disabled" false .Values.config.spec) -}}
{{- fail (printf "tokenizer.source %s and config.spec.tokenizer.disabled do not go together; set tokenizer.source to none, or remove disabled" $t.source) -}}
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

{{/* Names: the API server would refuse them, but after a part is installed. */}}
{{- define "warmpath.validate.names" -}}
{{- if and .Values.nameOverride (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .Values.nameOverride)) -}}
{{- fail (printf "nameOverride: %q must be lower case letters, digits and -, with a letter or digit at both ends" .Values.nameOverride) -}}
{{- end -}}
{{- if and .Values.fullnameOverride (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Values.fullnameOverride)) -}}
{{- fail (printf "fullnameOverride: %q must be lower case letters, digits and -, with a letter first and a letter or digit last: Services are called so" .Values.fullnameOverride) -}}
{{- end -}}
{{- $name := include "warmpath.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "no Service can be called %q, after the release; set fullnameOverride to lower case letters, digits and -, with a letter first" $name) -}}
{{- end -}}
{{- end -}}

{{/* Labels of nodes: whoever makes the rights has to make those, too. */}}
{{- define "warmpath.validate.nodes" -}}
{{- if and .Values.rbac.nodes (not .Values.rbac.create) -}}
{{- fail "rbac.nodes makes a ClusterRole, and rbac.create: false asks for no roles; give the picker's account the right to list and watch nodes yourself, and remove rbac.nodes" -}}
{{- end -}}
{{- $specs := dict "config.spec" .Values.config.spec -}}
{{- if .Values.routingPolicy.create -}}{{- $_ := set $specs "routingPolicy.spec" .Values.routingPolicy.spec -}}{{- end -}}
{{- range $field, $spec := $specs -}}
{{- if and (eq (dig "topology" "labelsFrom" "Pods" $spec) "PodsAndNodes") $.Values.rbac.create (not $.Values.rbac.nodes) -}}
{{- fail (printf "%s.topology.labelsFrom: PodsAndNodes needs the right to list and watch nodes; set rbac.nodes" $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Addresses: each needs a port of its own in the pod. */}}
{{- define "warmpath.validate.ports" -}}
{{- $ports := fromYaml (include "warmpath.ports" .) -}}
{{- $of := dict -}}
{{- range $name := list "extProc" "health" "metrics" "recovery" -}}
{{- $_ := set $of (printf "config.server.%sAddress" $name) (get $ports $name) -}}
{{- end -}}
{{- if .Values.nats.embedded.enabled -}}
{{- $_ := set $of "nats.embedded.service.port" .Values.nats.embedded.service.port -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $field, $port := $of -}}
{{- $port = toString (int $port) -}}
{{- with get $seen $port -}}
{{- fail (printf "%s and %s both are port %s of the pod; give one of them another" . $field $port) -}}
{{- end -}}
{{- $_ := set $seen $port $field -}}
{{- end -}}
{{- end -}}

{{/* The connection to NATS, apart from secrets. */}}
{{- define "warmpath.validate.nats" -}}
{{- range $field, $url := dict "nats.url" .Values.nats.url "config.spec.eventPlane.nats.url" (dig "eventPlane" "nats" "url" "" .Values.config.spec) -}}
{{- if and $url (or (hasSuffix "," $url) (not (regexMatch "^( *(nats|tls|wss?)://[^/@?#,\\s]+(/[^@?#,\\s]*)? *(,|$))+$" $url))) -}}
{{- fail (printf "%s: every server must be nats://, tls://, ws:// or wss:// and a host, without user and password; sign in with a Secret: nats.existingSecret" $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* NATS of the picker's own: no replicas, no other server, no secrets. */}}
{{- define "warmpath.validate.embedded" -}}
{{- $nats := .Values.nats -}}
{{- if $nats.embedded.enabled -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "nats.embedded.enabled: one picker serves NATS to all workers, so autoscaling.enabled must be false; for more replicas run a NATS server and set nats.url" -}}
{{- else if gt (int .Values.replicaCount) 1 -}}
{{- fail (printf "nats.embedded.enabled: one picker serves NATS to all workers, so replicaCount must be 1, not %d; for more replicas run a NATS server and set nats.url" (int .Values.replicaCount)) -}}
{{- else if $nats.url -}}
{{- fail "nats.embedded.enabled and nats.url are both set; keep nats.url where there is a NATS server" -}}
{{- else if dig "eventPlane" "nats" "url" "" .Values.config.spec -}}
{{- fail "nats.embedded.enabled and config.spec.eventPlane.nats.url are both set; keep the URL where there is a NATS server" -}}
{{- end -}}
{{- with include "warmpath.natsSecrets" . -}}
{{- fail (printf "nats.embedded.enabled: the picker serves NATS without passwords and TLS; remove %s, or run a NATS server and set nats.url" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How to sign in: one way, whole, and to a server that is named. */}}
{{- define "warmpath.validate.signIn" -}}
{{- $nats := .Values.nats -}}
{{- $file := default dict (dig "eventPlane" "nats" dict .Values.config.spec) -}}
{{- $user := or $nats.userKey $file.userFile -}}
{{- $password := or $nats.passwordKey $file.passwordFile -}}
{{- if and $user (not $password) -}}
{{- fail "nats.userKey needs nats.passwordKey, the key of the password in the same Secret" -}}
{{- else if and $password (not $user) -}}
{{- fail "nats.passwordKey needs nats.userKey, the key of the user's name in the same Secret" -}}
{{- end -}}
{{- $ways := list (or $nats.credsKey $file.credentialsFile) (or $nats.nkeyKey $file.nkeyFile) $user (or $nats.tokenKey $file.tokenFile) -}}
{{- if gt (len (compact $ways)) 1 -}}
{{- fail (printf "%s: only one way to sign in is possible; keep one of nats.credsKey, nats.nkeyKey, nats.userKey with nats.passwordKey, and nats.tokenKey" (include "warmpath.natsSecrets" .)) -}}
{{- end -}}
{{- $secrets := include "warmpath.natsSecrets" . -}}
{{- if and $secrets (not (or $nats.embedded.enabled $nats.url $file.url)) -}}
{{- fail (printf "%s: no server is named to use it with; set nats.url. A RoutingPolicy that names a URL of its own uses nothing of nats: it must name its files itself, below /etc/warmpath/secrets, and extraSecrets mounts them" $secrets) -}}
{{- end -}}
{{- end -}}

{{/* The values that say how to sign in and encrypt, by name; empty without. */}}
{{- define "warmpath.natsSecrets" -}}
{{- $list := list -}}
{{- range $key := list "credsKey" "nkeyKey" "userKey" "passwordKey" "tokenKey" -}}
{{- if get $.Values.nats $key -}}{{- $list = append $list (printf "nats.%s" $key) -}}{{- end -}}
{{- end -}}
{{- if .Values.nats.tls.enabled -}}{{- $list = append $list "nats.tls.enabled" -}}{{- end -}}
{{- $file := default dict (dig "eventPlane" "nats" dict .Values.config.spec) -}}
{{- range $key := list "credentialsFile" "nkeyFile" "userFile" "passwordFile" "tokenFile" "tls" -}}
{{- if hasKey $file $key -}}{{- $list = append $list (printf "config.spec.eventPlane.nats.%s" $key) -}}{{- end -}}
{{- end -}}
{{- join ", " $list -}}
{{- end -}}
