package gateway

import (
	"bytes"
	_ "embed"
	"fmt"
	"strconv"
	"text/template"
	"time"
)

//go:embed envoy.yaml.tmpl
var envoyYAML string

var envoyTemplate = template.Must(template.New("envoy.yaml.tmpl").Funcs(template.FuncMap{
	// A JSON string is a YAML string and, for the plain values used here, a Lua one.
	"quote":   func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
	"seconds": func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" },
}).Parse(envoyYAML))

// templateData is what the template sees: the configuration, its modes spelled
// out, and the protocol's names.
type templateData struct {
	Config
	ByHeader, ByMetadata, OverrideHost  bool
	RequestTrailers, ResponseTrailers   bool
	SubsetListHeader                    string
	SubsetStringHeader, SubsetNamespace string
	SubsetKey, LBNamespace              string
	DestinationKey, ServedKey           string
}

// renderEnvoy returns the Envoy configuration file for a valid cfg that has its
// defaults filled in.
func renderEnvoy(cfg Config) ([]byte, error) {
	var out bytes.Buffer
	err := envoyTemplate.Execute(&out, templateData{
		Config:       cfg,
		ByHeader:     cfg.Follow == ByHeader,
		ByMetadata:   cfg.Follow == ByMetadata,
		OverrideHost: cfg.Follow == OverrideHost,
		// Envoy refuses full duplex without trailers.
		RequestTrailers:    cfg.RequestBodyMode == FullDuplex,
		ResponseTrailers:   cfg.ResponseBodyMode == FullDuplex,
		SubsetListHeader:   SubsetListHeader,
		SubsetStringHeader: SubsetStringHeader,
		SubsetNamespace:    subsetNamespace,
		SubsetKey:          subsetKey,
		LBNamespace:        lbNamespace,
		DestinationKey:     destinationKey,
		ServedKey:          servedKey,
	})
	if err != nil {
		return nil, fmt.Errorf("render the envoy configuration: %w", err)
	}
	return out.Bytes(), nil
}
