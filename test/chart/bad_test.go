package chart

import (
	"strings"
	"testing"
)

// TestBadValues renders values that are wrong, and expects to be told what to do.
func TestBadValues(t *testing.T) {
	long := strings.Repeat("a", 254)
	for name, tc := range map[string]struct {
		set  []string
		want string
	}{
		"unknown value":                {[]string{"replicas=2"}, "additional properties 'replicas' not allowed"},
		"unknown nested value":         {[]string{"nats.uri=nats://n:4222"}, "additional properties 'uri' not allowed"},
		"unknown deep value":           {[]string{"nats.tls.ca=x"}, "additional properties 'ca' not allowed"},
		"unknown field of the config":  {[]string{"config.spec.blocksize=16"}, "additional properties 'blocksize' not allowed"},
		"unknown field of the server":  {[]string{"config.server.port=1"}, "additional properties 'port' not allowed"},
		"unknown part of the config":   {[]string{"config.specs.blockSize=16"}, "additional properties 'specs' not allowed"},
		"unknown field of the policy":  {[]string{"routingPolicy.create=true", "routingPolicy.spec.cost.overlapWeight=1"}, "additional properties 'overlapWeight' not allowed"},
		"targetRef of the policy":      {[]string{"routingPolicy.create=true", "routingPolicy.spec.targetRef.name=x"}, "additional properties 'targetRef' not allowed"},
		"value out of range":           {[]string{"config.spec.blockSize=0"}, "/config/spec/blockSize"},
		"value of another type":        {[]string{"autoscaling.enabled=yes please"}, "got string, want boolean"},
		"negative replicas":            {[]string{"replicaCount=-1"}, "/replicaCount"},
		"preset":                       {[]string{"gateway.preset=nginx"}, "value must be one of 'none', 'istio'"},
		"failure mode":                 {[]string{"inferencePool.failureMode=Open"}, "'FailOpen', 'FailClose'"},
		"source":                       {[]string{"tokenizer.source=hub"}, "'none', 'pvc', 'huggingFace', 'ociVolume'"},
		"digest":                       {[]string{"image.digest=sha256:12"}, "/image/digest"},
		"pool's name":                  {[]string{"inferencePool.name=My_Pool"}, "/inferencePool/name"},
		"pool's long name":             {[]string{"inferencePool.name=" + long}, "/inferencePool/name"},
		"port":                         {[]string{"inferencePool.targetPorts={0}"}, "/inferencePool/targetPorts/0"},
		"ports twice":                  {[]string{"inferencePool.targetPorts={8000,8000}"}, "items at 0 and 1 are equal"},
		"nine ports":                   {[]string{"inferencePool.targetPorts={1,2,3,4,5,6,7,8,9}"}, "maxItems"},
		"folder outside of the volume": {[]string{"tokenizer.source=pvc", "tokenizer.pvc.claimName=c", "tokenizer.pvc.path=../x"}, "/tokenizer/pvc/path"},
		"config of another version":    {[]string{"config.apiVersion=routing.warmpath.dev/v1"}, "/config/apiVersion"},
		"embedded, two replicas":       {[]string{"nats.embedded.enabled=true"}, "replicaCount must be 1, not 2"},
		"embedded, autoscaling":        {[]string{"nats.embedded.enabled=true", "replicaCount=1", "autoscaling.enabled=true"}, "autoscaling.enabled must be false"},
		"embedded, and a server":       {[]string{"nats.embedded.enabled=true", "replicaCount=1", "nats.url=nats://n:4222"}, "nats.embedded.enabled and nats.url are both set"},
		"embedded, server in config":   {[]string{"nats.embedded.enabled=true", "replicaCount=1", "config.spec.eventPlane.nats.url=nats://n:4222"}, "nats.embedded.enabled and config.spec.eventPlane.nats.url are both set"},
		"embedded, TLS":                {[]string{"nats.embedded.enabled=true", "replicaCount=1", "nats.tls.enabled=true"}, "without passwords and TLS; remove nats.tls.enabled"},
		"embedded, password":           {[]string{"nats.embedded.enabled=true", "replicaCount=1", "nats.existingSecret=s", "nats.userKey=u", "nats.passwordKey=p"}, "without passwords and TLS; remove nats.userKey, nats.passwordKey"},
		"embedded in the config":       {[]string{"config.server.embeddedNATS.address=:4222"}, "set nats.embedded.enabled instead"},
		"two URLs":                     {[]string{"nats.url=nats://n:4222", "config.spec.eventPlane.nats.url=nats://n:4222"}, "keep one of the two"},
		"key without a Secret":         {[]string{"nats.url=nats://n:4222", "nats.tokenKey=t"}, "nats.existingSecret, which holds it, is not"},
		"two ways to sign in":          {[]string{"nats.url=nats://n:4222", "nats.existingSecret=s", "nats.credsKey=c", "nats.tokenKey=t"}, "nats.credsKey, nats.tokenKey: only one way to sign in is possible"},
		"nkey and user":                {[]string{"nats.url=nats://n:4222", "nats.existingSecret=s", "nats.nkeyKey=n", "nats.userKey=u", "nats.passwordKey=p"}, "nats.nkeyKey, nats.userKey, nats.passwordKey: only one way to sign in is possible"},
		"sign in here and in config":   {[]string{"nats.url=nats://n:4222", "nats.existingSecret=s", "nats.nkeyKey=n", "config.spec.eventPlane.nats.tokenFile=/t"}, "nats.nkeyKey, config.spec.eventPlane.nats.tokenFile: only one way"},
		"user without password":        {[]string{"nats.url=nats://n:4222", "nats.existingSecret=s", "nats.userKey=u"}, "nats.userKey needs nats.passwordKey"},
		"password without user":        {[]string{"nats.url=nats://n:4222", "nats.existingSecret=s", "nats.passwordKey=p"}, "nats.passwordKey needs nats.userKey"},
		"sign in nowhere":              {[]string{"nats.existingSecret=s", "nats.credsKey=c"}, "nats.credsKey: no server is named to use it with; set nats.url"},
		"TLS to nowhere":               {[]string{"nats.tls.enabled=true"}, "nats.tls.enabled: no server is named to use it with; set nats.url"},
		"URL of another scheme":        {[]string{"nats.url=http://n:4222"}, "nats.url: every server must be nats://"},
		"URL without scheme":           {[]string{"nats.url=n:4222"}, "nats.url: every server must be nats://"},
		"second URL":                   {[]string{`nats.url=nats://n:4222\,redis://m:1`}, "nats.url: every server must be nats://"},
		"URL with a password":          {[]string{"nats.url=nats://u:p@n:4222"}, "without user and password"},
		"URL in the config":            {[]string{"config.spec.eventPlane.nats.url=http://n:4222"}, "config.spec.eventPlane.nats.url: every server must be nats://"},
		"two monitors":                 {[]string{"metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true"}, "keep one of the two"},
		"TLS and kgateway":             {[]string{"extProcTLS.enabled=true", "gateway.preset=kgateway"}, "turn extProcTLS off"},
		"TLS and agentgateway":         {[]string{"extProcTLS.enabled=true", "gateway.preset=agentgateway"}, "turn extProcTLS off"},
		"TLS and Envoy Gateway":        {[]string{"extProcTLS.enabled=true", "gateway.preset=envoyGateway"}, "gateway.preset envoyGateway speaks to pickers without TLS; turn extProcTLS off"},
		"TLS and Envoy AI Gateway":     {[]string{"extProcTLS.enabled=true", "gateway.preset=envoyAIGateway"}, "gateway.preset envoyAIGateway speaks to pickers without TLS; turn extProcTLS off"},
		"TLS in the config":            {[]string{"config.server.extProcTLS.selfSigned=true"}, "set extProcTLS.enabled instead"},
		"pool without labels":          {[]string{"inferencePool.create=true"}, "inferencePool.matchLabels"},
		"pool in the config":           {[]string{"config.discovery.kubernetes.pool.name=x"}, "set inferencePool.name instead"},
		"pool and selector":            {[]string{"inferencePool.create=true", "inferencePool.matchLabels.app=x", "config.discovery.kubernetes.selector.labelSelector=app=x", "config.discovery.kubernetes.selector.targetPorts={8000}"}, "is for clusters without InferencePool"},
		"selector elsewhere":           {[]string{"config.discovery.kubernetes.selector.labelSelector=app=x", "config.discovery.kubernetes.selector.targetPorts={8000}", "config.discovery.kubernetes.selector.namespace=other"}, "install the release in other"},
		"route without Gateway":        {[]string{"httpRoute.create=true"}, "httpRoute.parentRefs"},
		"claim":                        {[]string{"tokenizer.source=pvc"}, "tokenizer.pvc.claimName"},
		"repository":                   {[]string{"tokenizer.source=huggingFace"}, "tokenizer.huggingFace.repository"},
		"reference":                    {[]string{"tokenizer.source=ociVolume"}, "tokenizer.ociVolume.reference"},
		"two sources":                  {[]string{"tokenizer.source=pvc", "tokenizer.pvc.claimName=c", "config.spec.tokenizer.inProcess.source.directory.path=/x"}, "keep one of the two"},
		"source of nothing":            {[]string{"tokenizer.source=pvc", "tokenizer.pvc.claimName=c", "config.spec.tokenizer.disabled=true"}, "tokenizer.source pvc and config.spec.tokenizer.disabled do not go together"},
		"name of the chart":            {[]string{"nameOverride=My_Picker"}, `nameOverride: "My_Picker" must be lower case`},
		"name of all":                  {[]string{"fullnameOverride=llm.picker"}, `fullnameOverride: "llm.picker" must be lower case`},
		"name of all with a digit":     {[]string{"fullnameOverride=1-picker"}, "with a letter first"},
		"one port for two":             {[]string{"config.server.metricsAddress=:9003"}, "config.server.healthAddress and config.server.metricsAddress both are port 9003"},
		"one port on two addresses":    {[]string{"config.server.extProcAddress=127.0.0.1:9004"}, "config.server.extProcAddress and config.server.recoveryAddress both are port 9004"},
		"port of embedded NATS":        {[]string{"nats.embedded.enabled=true", "replicaCount=1", "config.server.healthAddress=:4222"}, "config.server.healthAddress and nats.embedded.service.port both are port 4222"},
		"open Envoy without workers":   {[]string{"gateway.preset=standaloneEnvoy", "inferencePool.failureMode=FailOpen"}, "gateway.standaloneEnvoy.matchLabels"},
		"nodes without the right":      {[]string{"routingPolicy.create=true", "routingPolicy.spec.topology.labelsFrom=PodsAndNodes"}, "routingPolicy.spec.topology.labelsFrom: PodsAndNodes needs the right to list and watch nodes; set rbac.nodes"},
		"nodes in the config":          {[]string{"config.spec.topology.labelsFrom=PodsAndNodes"}, "config.spec.topology.labelsFrom: PodsAndNodes needs the right to list and watch nodes; set rbac.nodes"},
		"nodes without roles":          {[]string{"rbac.nodes=true", "rbac.create=false"}, "rbac.nodes makes a ClusterRole, and rbac.create: false asks for no roles"},
		"short grace":                  {[]string{"terminationGracePeriodSeconds=30"}, "must be above config.server.drainTimeout"},
		"any port":                     {[]string{"config.server.extProcAddress=:0"}, "has no fixed port"},
		"memory":                       {[]string{"resources.limits.memory=lots"}, "is no amount of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := make([]string, 0, 2*len(tc.set))
			for _, s := range tc.set {
				args = append(args, "--set", s)
			}
			out, err := tools.Template(t.Context(), root, "llm-router", "demo", args...)
			switch {
			case err == nil:
				t.Errorf("%q was rendered:\n%.400s", tc.set, out)
			case !strings.Contains(err.Error(), tc.want):
				t.Errorf("%q: the error does not say %q:\n%v", tc.set, tc.want, err)
			}
		})
	}
}

// TestBadReleaseName renders a release whose name no Service can have.
func TestBadReleaseName(t *testing.T) {
	const want = `no Service can be called "1-llm-warmpath"`
	if _, err := tools.Template(t.Context(), root, "1-llm", "demo"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not say %q: %v", want, err)
	}
	if _, err := tools.Template(t.Context(), root, "1-llm", "demo", "--set", "fullnameOverride=llm"); err != nil {
		t.Errorf("fullnameOverride does not help: %v", err)
	}
}
