{{/* The bootstrap of a standalone Envoy. With FailClose it dials what the picker says
(ORIGINAL_DST), and nothing else. With FailOpen it knows the workers' addresses, too, so
that it can go on without a picker; it follows only picks that DNS has told it of.

A picker that dies takes no request along. Envoy keeps what a picker has not answered yet
(bodies BUFFERED and STREAMED, not FULL_DUPLEX_STREAMED), so it can go on without it
(failure_mode_allow): a request that is decided simply goes on; one that is not is shown
to another picker by the filter "again". Without a decision FailClose has nowhere to send
a request, so failure_mode_allow opens nothing there: Envoy answers 503. */}}
{{- define "warmpath.envoy" -}}
{{- $e := .Values.gateway.standaloneEnvoy -}}
{{- $name := include "warmpath.fullname" . -}}
{{- $domain := printf "%s.svc.cluster.local" .Release.Namespace -}}
{{- $ports := fromYaml (include "warmpath.ports" .) -}}
{{- $open := eq .Values.inferencePool.failureMode "FailOpen" -}}
{{- $breakers := printf "{thresholds: [{max_connections: %d, max_pending_requests: %d, max_requests: %d, max_retries: %d}]}" (int $e.maxRequests) (int $e.maxRequests) (int $e.maxRequests) (int $e.maxRequests) -}}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
static_resources:
  listeners:
  - name: requests
    address: {socket_address: {address: {{ $e.listenAddress | quote }}, port_value: 8080}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: requests
          codec_type: AUTO # HTTP/1.1, and HTTP/2 without TLS
          http_protocol_options: {enable_trailers: true}
          http2_protocol_options: {max_concurrent_streams: 1000}
          common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}
          use_remote_address: true
          stream_idle_timeout: {{ $e.streamIdleTimeoutSeconds }}s # what bounds a picker or a worker that hangs
          route_config:
            virtual_hosts:
            - name: pool
              domains: ["*"]
              routes:
              - match: {prefix: /}
                request_body_buffer_limit: {{ include "warmpath.envoy.maxBody" . }}
                route:
                  cluster: workers
                  timeout: 0s # generation takes as long as it takes
                  {{- if $open }}
                  retry_policy: {retry_on: "connect-failure,refused-stream", num_retries: 2}
                  {{- end }}
          http_filters:
          {{- if $open }}
          - name: unsteered # sidecars trust these headers, and a request may go on without a picker that removes them
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
              mutations:
                request_mutations:
                {{- range splitList " " (include "warmpath.routingHeaders" .) }}
                - {remove: {{ . }}}
                {{- end }}
          {{- end }}
          - name: envoy.filters.http.ext_proc
            typed_config:
              {{- include "warmpath.envoy.extProc" . | nindent 14 }}
          - name: shown # notes that a request comes as far as "again": one that is refused does not
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
              metadata: [{metadata_namespace: warmpath, value: {shown: true}}]
          - name: again # for requests whose picker died before it decided
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher
              extension_config:
                name: envoy.filters.http.ext_proc
                typed_config:
                  {{- include "warmpath.envoy.extProc" . | nindent 18 }}
                  stat_prefix: again
              xds_matcher:
                matcher_list:
                  matchers:
                  - predicate:
                      or_matcher:
                        predicate:
                        - single_predicate: # a picker has decided
                            input:
                              name: picked
                              typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput, filter: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}
                            custom_match: &present
                              name: present
                              typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.input_matchers.metadata.v3.Metadata, value: {present_match: true}}
                        - not_matcher: # a refusal is on its way back
                            single_predicate:
                              input:
                                name: shown
                                typed_config: {"@type": type.googleapis.com/envoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInput, filter: warmpath, path: [{key: shown}]}
                              custom_match: *present
                    on_match:
                      action:
                        name: skip
                        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.common.matcher.action.v3.SkipFilter}
          {{- if not $open }}
          - name: envoy.filters.http.header_to_metadata # tells the picker who served
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              response_rules:
              - header: x-served
                on_header_present: {metadata_namespace: envoy.lb, key: x-gateway-destination-endpoint-served}
                remove: true
          {{- end }}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  - name: probes # the admin port is for this container only
    address: {socket_address: {address: {{ $e.listenAddress | quote }}, port_value: 8081}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: probes
          route_config:
            virtual_hosts:
            - name: admin
              domains: ["*"]
              routes:
              - {match: {path: /ready}, route: {cluster: admin}}
              - {match: {path: /stats/prometheus}, route: {cluster: admin}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: admin
    type: STATIC
    load_assignment:
      cluster_name: admin
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}}]}]
  - name: picker # every picker is known, and asked whether it serves
    type: STRICT_DNS
    connect_timeout: 1s
    dns_refresh_rate: 2s
    lb_policy: LEAST_REQUEST
    circuit_breakers: {{ $breakers }}
    common_lb_config: {healthy_panic_threshold: {value: 0}}
    health_checks:
    - timeout: 1s
      interval: 1s
      no_traffic_interval: 1s
      unhealthy_threshold: 2
      healthy_threshold: 1
      grpc_health_check: {service_name: envoy.service.ext_proc.v3.ExternalProcessor}
      {{- if .Values.extProcTLS.enabled }}
      tls_options: {alpn_protocols: [h2]} # gRPC servers insist on it
      {{- end }}
    outlier_detection: # a connection that breaks: no request more until a health check passes
      split_external_local_origin_errors: true
      consecutive_local_origin_failure: 1
      enforcing_local_origin_success_rate: 0
      enforcing_consecutive_5xx: 0
      enforcing_success_rate: 0
      interval: 1s
      base_ejection_time: 5s
      max_ejection_percent: 100
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 5s, timeout: 5s}}}
    {{- if .Values.extProcTLS.enabled }}
    transport_socket: # encrypted, not verified
      name: envoy.transport_sockets.tls
      typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, common_tls_context: {alpn_protocols: [h2]}}
    {{- end }}
    load_assignment:
      cluster_name: picker
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: {{ $name }}-pickers.{{ $domain }}, port_value: {{ $ports.extProc }}}}}}]}]
  - name: workers
    connect_timeout: 2s
    circuit_breakers: {{ $breakers }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        {{- if eq .Values.inferencePool.appProtocol "kubernetes.io/h2c" }}
        explicit_http_config: {http2_protocol_options: {}}
        {{- else }}
        explicit_http_config: {http_protocol_options: {enable_trailers: true}}
        {{- end }}
    {{- if $open }}
    type: STRICT_DNS
    dns_refresh_rate: 2s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            override_host_sources: # metadata only: clients cannot write it
            - metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}
            selected_host_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint-served}]}
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.round_robin
                  typed_config: {"@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin}
    load_assignment:
      cluster_name: workers
      endpoints:
      - lb_endpoints:
        {{- range .Values.inferencePool.targetPorts }}
        - endpoint: {address: {socket_address: {address: {{ $name }}-workers.{{ $domain }}, port_value: {{ . }}}}}
        {{- end }}
    {{- else }}
        http_filters:
        - name: envoy.filters.http.header_mutation
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
            mutations:
              response_mutations:
              - append: {header: {key: x-served, value: "%UPSTREAM_REMOTE_ADDRESS%"}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
        - name: envoy.filters.http.upstream_codec # must be last
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec}
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config: {metadata_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}}
    {{- end }}
{{- end -}}

{{/* How a picker is asked. */}}
{{- define "warmpath.envoy.extProc" -}}
"@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
grpc_service:
  envoy_grpc: {cluster_name: picker}
  retry_policy: # while a dead picker is still taken for alive; a body is never sent twice
    retry_on: reset,connect-failure,refused-stream
    num_retries: 3
    retry_back_off: {base_interval: 0.025s, max_interval: 0.1s}
    retry_host_predicate: # another picker, however long Envoy takes to put the dead one out
    - {name: envoy.retry_host_predicates.previous_hosts, typed_config: {"@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}
    host_selection_retry_max_attempts: 30 # the dead one has least requests, and is drawn often
failure_mode_allow: true
message_timeout: {{ min 3600 .Values.gateway.standaloneEnvoy.streamIdleTimeoutSeconds }}s # requests may wait for a worker; Envoy takes no more than an hour
processing_mode:
  request_header_mode: SEND
  request_body_mode: BUFFERED
  request_trailer_mode: SEND
  response_header_mode: SEND
  response_body_mode: STREAMED
  response_trailer_mode: SEND
metadata_options:
  forwarding_namespaces: {untyped: [envoy.lb.subset_hint, envoy.lb]}
  receiving_namespaces: {untyped: [envoy.lb]}
response_attributes: [upstream.address, upstream.request_attempt_count]
{{- end -}}

{{/* The headers that no client may send: those that a picker removes. */}}
{{- define "warmpath.routingHeaders" -}}
x-gateway-destination-endpoint x-gateway-destination-endpoint-subset x-gateway-destination-endpoint-served x-gateway-destination-endpoint-scores x-prefiller-host-port x-encoder-hosts-ports x-kv-cache-source-host-port x-data-parallel-host-port x-data-parallel-rank x-bypass-remote-prefill x-worker-instance-id x-dynamo-worker-instance-id x-dp-rank x-dynamo-dp-rank x-prefill-instance-id x-dynamo-prefill-instance-id x-prefill-dp-rank x-dynamo-prefill-dp-rank x-dynamo-routing-mode x-dynamo-request-id
{{- end -}}

{{/* The longest body that Envoy keeps: what the picker takes. */}}
{{- define "warmpath.envoy.maxBody" -}}
{{- default 67108864 .Values.config.server.maxBodyBytes | int64 -}}
{{- end -}}
