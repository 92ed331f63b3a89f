package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Load reads and decodes the configuration file at path. The paths in it become
// relative to the working directory instead of to the file. Unlike [Decode] it
// also looks into the files that must be there from the start, such as those that
// the connection to NATS needs.
func Load(path string) (*EndpointPickerConfig, error) {
	return LoadWith(path, &RoutingPolicySpec{})
}

// LoadWith is Load for a process whose environment sets what the file leaves out
// ([RoutingPolicySpec.FillFrom]).
func LoadWith(path string, environment *RoutingPolicySpec) (*EndpointPickerConfig, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c, d, err := decodeConfig(data, path, environment)
	if err != nil {
		return nil, err
	}
	var p problems
	for _, f := range c.files() {
		fromFolder(f, path)
	}
	if !c.Spec.EventPlane.Disabled {
		for _, f := range c.Spec.EventPlane.NATS.files("") {
			fromFolder(f.name, path)
		}
	}
	for _, name := range c.Spec.Tokenizer.InProcess.paths() {
		fromFolder(name, path)
	}
	if t := c.Server.ExtProcTLS; t != nil {
		t.checkFiles(&p, "server.extProcTLS")
	}
	if c.Discovery.Kubernetes == nil { // else a Secret may come later: see CheckFiles
		c.Spec.checkFiles(&p, "spec")
	}
	if err := d.check(p); err != nil {
		return nil, err
	}
	return c, nil
}

// CheckFiles looks into the files that the spec names and that must be there from
// the start: those that the connection to NATS needs, a template and tokens. The
// error joins one [FieldError] per problem; paths start at the spec. In a cluster
// they are mounted, and may come later than the picker: [Load] does not look then.
func (s *RoutingPolicySpec) CheckFiles() error {
	var p problems
	s.checkFiles(&p, "")
	return p.join()
}

func (s *RoutingPolicySpec) checkFiles(p *problems, path string) {
	if !s.EventPlane.Disabled {
		s.EventPlane.NATS.checkFiles(p, join(path, "eventPlane.nats"))
	}
	s.Tokenizer.InProcess.checkFiles(p, join(path, "tokenizer.inProcess"))
}

// fromFolder makes a relative file name start at the folder of the configuration.
func fromFolder(name *string, config string) {
	if !filepath.IsAbs(*name) {
		*name = filepath.Join(filepath.Dir(config), *name)
	}
}

// Decode reads a configuration strictly (unknown fields, duplicate keys and wrong
// types are errors), fills in the defaults and validates. filename is only used
// in errors. The error joins one [FieldError] per problem.
//
// A field written as null counts as left out.
func Decode(data []byte, filename string) (*EndpointPickerConfig, error) {
	c, _, err := decodeConfig(data, filename, &RoutingPolicySpec{})
	return c, err
}

// decodeConfig is Decode; the decoder knows the lines of the fields.
func decodeConfig(data []byte, filename string, environment *RoutingPolicySpec) (*EndpointPickerConfig, *decoder, error) {
	// Fields start at their defaults, so that a zero in the file is seen as a
	// zero and refused where it makes no sense.
	c := new(EndpointPickerConfig)
	c.Default()
	c.Spec.clearLate()
	d, err := decodeFile(data, filename, KindEndpointPickerConfig, c)
	if err != nil {
		return nil, nil, err
	}
	c.Spec.FillFrom(environment)
	c.Spec.defaultLate()
	if err := d.check(c.problems()); err != nil {
		return nil, nil, err
	}
	return c, d, nil
}

// LoadWorkers reads and decodes the list of workers at path.
func LoadWorkers(path string) (*WorkerList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the list of workers: %w", err)
	}
	return DecodeWorkers(data, path)
}

// DecodeWorkers reads a list of workers like [Decode] reads a configuration.
func DecodeWorkers(data []byte, filename string) (*WorkerList, error) {
	l := new(WorkerList)
	d, err := decodeFile(data, filename, KindWorkerList, l)
	if err != nil {
		return nil, err
	}
	var zero problems
	for i := range l.Workers {
		// Default would turn a written zero into the number of ports.
		if p := workerPath(i) + ".dataParallelSize"; d.wrote(p) && l.Workers[i].DataParallelSize == 0 {
			zero.add(p, "must be 1 to %d, not 0", maxRanks)
		}
	}
	l.Default()
	if err := d.check(append(zero, l.problems()...)); err != nil {
		return nil, err
	}
	return l, nil
}

// Encode writes a configuration or list of workers as YAML that decodes to the
// same value.
func Encode[T EndpointPickerConfig | WorkerList](v *T) ([]byte, error) { return yaml.Marshal(v) }

// decodeFile reads one document of the given kind into v. It returns an error
// right away when the rest could only be noise: no YAML, or another kind.
func decodeFile(data []byte, file, kind string, v any) (*decoder, error) {
	d := &decoder{file: file, lines: map[string]int{}}
	root := d.document(data)
	if root == nil {
		return nil, d.errs.join()
	}
	if !d.header(root, kind) {
		return nil, d.errs.join()
	}
	d.decode(root, v)
	return d, nil
}

// document parses the file's one YAML document; nil means there was an error.
func (d *decoder) document(data []byte) *yamlv3.Node {
	dec := yamlv3.NewDecoder(bytes.NewReader(data))
	var doc, more yamlv3.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) == 0 || isNull(doc.Content[0])) {
		d.fail(0, "", "the file is empty")
		return nil
	}
	if err == nil {
		err = dec.Decode(&more)
	}
	switch {
	case errors.Is(err, io.EOF):
		return doc.Content[0]
	case err != nil:
		line, msg := splitYAMLError(err)
		d.fail(line, "", "%s", msg)
	default:
		d.fail(more.Line, "", "a second YAML document; the file must hold one")
	}
	return nil
}

var yamlErrorLine = regexp.MustCompile(`^(?:line (\d+): )?(?s:(.*))$`)

// splitYAMLError takes the line number out of the YAML library's error text,
// the only place where it has it.
func splitYAMLError(err error) (int, string) {
	m := yamlErrorLine.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
	line, _ := strconv.Atoi(m[1]) // empty: 0, unknown
	return line, "not valid YAML: " + m[2]
}

// header checks apiVersion and kind. It returns false when the file is something
// else, whose fields are not worth reporting.
func (d *decoder) header(root *yamlv3.Node, kind string) bool {
	if root.Kind != yamlv3.MappingNode {
		d.fail(root.Line, "", "expected fields such as apiVersion and kind, got %s", describe(root))
		return false
	}
	var version, name *yamlv3.Node
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key, val := root.Content[i].Value, root.Content[i+1]; {
		case isNull(val):
		case key == "apiVersion":
			version = val
		case key == "kind":
			name = val
		}
	}
	return d.headerField(version, "apiVersion", APIVersion) && d.headerField(name, "kind", kind)
}

// headerField reports a missing or wrong value. It returns false for a wrong one.
func (d *decoder) headerField(n *yamlv3.Node, path, want string) bool {
	switch {
	case n == nil:
		d.fail(0, path, "required: %s", want)
	case n.Kind == yamlv3.ScalarNode && n.Value != want:
		d.fail(n.Line, path, "%q is not what belongs here; expected %s", n.Value, want)
		return false
	}
	return true
}
