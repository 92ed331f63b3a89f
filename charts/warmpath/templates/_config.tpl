{{/* The configuration file: config, and what the other values add to it. */}}
{{- define "warmpath.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $_ := set $config "server" (fromYaml (include "warmpath.config.server" .)) -}}
{{- $kubernetes := deepCopy (default dict .Values.config.discovery.kubernetes) -}}
{{- if not (or $kubernetes.pool $kubernetes.selector) -}}
{{- $_ := set $kubernetes "pool" (dict "name" (include "warmpath.pool" .) "namespace" .Release.Namespace) -}}
{{- end -}}
{{- $_ := set $config "discovery" (dict "kubernetes" $kubernetes) -}}
{{- $spec := deepCopy .Values.config.spec -}}
{{- $_ := include "warmpath.config.events" (dict "root" . "spec" $spec) -}}
{{- $_ := include "warmpath.config.tokenizer" (dict "root" . "spec" $spec) -}}
{{- $_ := set $config "spec" $spec -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "warmpath.config.server" -}}
{{- $server := deepCopy .Values.config.server -}}
{{- $tls := .Values.extProcTLS -}}
{{- if and $tls.enabled $server.extProcTLS -}}
{{- fail "extProcTLS.enabled and config.server.extProcTLS are both set; keep extProcTLS" -}}
{{- else if $server.extProcTLS -}}
{{- fail "config.server.extProcTLS: set extProcTLS.enabled instead, so that the gateway's objects fit" -}}
{{- else if and $tls.enabled $tls.existingSecret -}}
{{- $dir := printf "/etc/warmpath/secrets/%s" $tls.existingSecret -}}
{{- $_ := set $server "extProcTLS" (dict "certFile" (printf "%s/%s" $dir $tls.certKey) "keyFile" (printf "%s/%s" $dir $tls.keyKey)) -}}
{{- else if $tls.enabled -}}
{{- $_ := set $server "extProcTLS" (dict "selfSigned" true) -}}
{{- end -}}
{{- if $server.embeddedNATS -}}
{{- fail "config.server.embeddedNATS: set nats.embedded.enabled instead, which makes its Service" -}}
{{- end -}}
{{- if .Values.nats.embedded.enabled -}}
{{- $_ := set $server "embeddedNATS" (dict "address" (printf ":%d" (int .Values.nats.embedded.service.port))) -}}
{{- end -}}
{{- toYaml $server -}}
{{- end -}}

{{/* Adds spec.eventPlane: dict root, spec. */}}
{{- define "warmpath.config.events" -}}
{{- $nats := .root.Values.nats -}}
{{- $events := default dict .spec.eventPlane -}}
{{- $out := default dict $events.nats -}}
{{- if and $nats.url $out.url -}}
{{- fail "nats.url and config.spec.eventPlane.nats.url are both set; keep one of the two" -}}
{{- end -}}
{{- if $nats.url -}}{{- $_ := set $out "url" $nats.url -}}{{- end -}}
{{- if $nats.namespace -}}{{- $_ := set $out "namespace" $nats.namespace -}}{{- end -}}
{{- $dir := printf "/etc/warmpath/secrets/%s" $nats.existingSecret -}}
{{- range $key, $field := dict "credsKey" "credentialsFile" "nkeyKey" "nkeyFile" "userKey" "userFile" "passwordKey" "passwordFile" "tokenKey" "tokenFile" -}}
{{- with get $nats $key -}}
{{- if not $nats.existingSecret -}}
{{- fail (printf "nats.%s is set, but nats.existingSecret, which holds it, is not" $key) -}}
{{- end -}}
{{- $_ := set $out $field (printf "%s/%s" $dir .) -}}
{{- end -}}
{{- end -}}
{{- if $nats.tls.enabled -}}
{{- $tls := default dict $out.tls -}}
{{- if $nats.tls.existingSecret -}}
{{- range $key, $field := dict "caKey" "caFile" "certKey" "certFile" "keyKey" "keyFile" -}}
{{- with get $nats.tls $key -}}
{{- if not (and (eq $key "caKey") $nats.tls.insecureSkipVerify) -}}
{{- $_ := set $tls $field (printf "/etc/warmpath/secrets/%s/%s" $nats.tls.existingSecret .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $nats.tls.serverName -}}{{- $_ := set $tls "serverName" $nats.tls.serverName -}}{{- end -}}
{{- if $nats.tls.insecureSkipVerify -}}{{- $_ := set $tls "insecureSkipVerify" true -}}{{- end -}}
{{- $_ := set $out "tls" $tls -}}
{{- end -}}
{{- if or $out $nats.tls.enabled -}}{{- $_ := set $events "nats" $out -}}{{- end -}}
{{- if and (gt (include "warmpath.replicas" .root | int) 1) (not $events.disabled) (not (hasKey $events "replicaSync")) -}}
{{- $_ := set $events "replicaSync" true -}}
{{- end -}}
{{- if $events -}}{{- $_ := set .spec "eventPlane" $events -}}{{- end -}}
{{- end -}}

{{/* Adds spec.tokenizer.inProcess.source: dict root, spec. */}}
{{- define "warmpath.config.tokenizer" -}}
{{- $t := .root.Values.tokenizer -}}
{{- $source := dict -}}
{{- if eq $t.source "pvc" -}}
{{- $_ := set $source "directory" (dict "path" (include "warmpath.modelPath" $t.pvc.path)) -}}
{{- else if eq $t.source "ociVolume" -}}
{{- $_ := set $source "directory" (dict "path" (include "warmpath.modelPath" $t.ociVolume.path)) -}}
{{- else if eq $t.source "huggingFace" -}}
{{- $hub := dict "cacheDir" "/var/cache/warmpath" -}}
{{- if $t.huggingFace.address -}}{{- $_ := set $hub "address" $t.huggingFace.address -}}{{- end -}}
{{- if $t.tokenSecret.name -}}
{{- $_ := set $hub "tokenFile" (printf "/etc/warmpath/secrets/%s/%s" $t.tokenSecret.name $t.tokenSecret.key) -}}
{{- end -}}
{{- $_ := set $source "huggingFace" (dict "repository" $t.huggingFace.repository "revision" $t.huggingFace.revision "hub" $hub) -}}
{{- end -}}
{{- if $source -}}
{{- $tokenizer := default dict .spec.tokenizer -}}
{{- $inProcess := default dict $tokenizer.inProcess -}}
{{- if $inProcess.source -}}
{{- fail "tokenizer.source and config.spec.tokenizer.inProcess.source are both set; keep one of the two" -}}
{{- end -}}
{{- $_ := set $inProcess "source" $source -}}
{{- $_ := set $tokenizer "inProcess" $inProcess -}}
{{- $_ := set .spec "tokenizer" $tokenizer -}}
{{- end -}}
{{- end -}}

{{/* The folder of the model's files: /etc/warmpath/model and a folder in it. */}}
{{- define "warmpath.modelPath" -}}
{{- clean (printf "/etc/warmpath/model/%s" .) -}}
{{- end -}}

{{/* The spec of the RoutingPolicy. Replicas tell each other what they place. */}}
{{- define "warmpath.policy" -}}
{{- $spec := deepCopy .Values.routingPolicy.spec -}}
{{- $events := default dict $spec.eventPlane -}}
{{- if and (gt (include "warmpath.replicas" . | int) 1) (not $events.disabled) (not (hasKey $events "replicaSync")) -}}
{{- $_ := set $events "replicaSync" true -}}
{{- $_ := set $spec "eventPlane" $events -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}
