package v1alpha1

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxTargetPorts is the most an InferencePool may have (endpoint-picker.md 2.1).
const maxTargetPorts = 8

func (d *DiscoveryConfig) check(p *problems, path string) {
	switch {
	case d.File == nil && d.Kubernetes == nil:
		p.add(path, "says where the workers are: set kubernetes, or file")
	case d.File != nil && d.Kubernetes != nil:
		p.add(path+".file", "not allowed together with kubernetes; keep one of the two")
	}
	if f := d.File; f != nil && f.Path == "" {
		p.add(path+".file.path", "required: the file that lists the workers")
	}
	if k := d.Kubernetes; k != nil {
		k.check(p, path+".kubernetes")
	}
}

func (k *KubernetesDiscovery) check(p *problems, path string) {
	switch {
	case k.Pool == nil && k.Selector == nil:
		p.add(path+".pool", "required: the InferencePool whose pods are the workers; without its CRD set selector")
	case k.Pool != nil && k.Selector != nil:
		p.add(path+".selector", "not allowed together with pool; keep one of the two")
	}
	if r := k.Pool; r != nil {
		checkName(p, path+".pool.name", r.Name, "an InferencePool", validation.IsDNS1123Subdomain)
		checkNamespace(p, path+".pool.namespace", r.Namespace)
	}
	if s := k.Selector; s != nil {
		s.check(p, path+".selector")
	}
	checkEnum(p, path+".workerIdentity", k.WorkerIdentity, IdentityPod, IdentityContainer)
	distinct(p, map[string]string{}, path+".activePortsAnnotations", k.ActivePortsAnnotations)
	distinct(p, map[string]string{}, path+".policyFileFolders", k.PolicyFileFolders)
	for i, folder := range k.PolicyFileFolders {
		if !filepath.IsAbs(folder) || filepath.Clean(folder) == "/" {
			p.add(fmt.Sprintf("%s.policyFileFolders[%d]", path, i), "%.128q is not a folder below /, such as /etc/warmpath", folder)
		}
	}
}

func (s *PodSelector) check(p *problems, path string) {
	if s.LabelSelector == "" {
		p.add(path+".labelSelector", "required, such as app=llm")
	} else if _, err := labels.Parse(s.LabelSelector); err != nil {
		p.add(path+".labelSelector", "%s", err)
	}
	checkNamespace(p, path+".namespace", s.Namespace)
	if n := len(s.TargetPorts); n < 1 || n > maxTargetPorts {
		p.add(path+".targetPorts", "must have 1 to %d ports, not %d", maxTargetPorts, n)
	}
	seen := map[int]bool{}
	for i, port := range s.TargetPorts {
		at := fmt.Sprintf("%s.targetPorts[%d]", path, i)
		switch {
		case port < 1 || port > 65535:
			p.add(at, "must be 1 to 65535, not %d", port)
		case seen[port]:
			p.add(at, "%d is there twice", port)
		}
		seen[port] = true
	}
}

func checkNamespace(p *problems, path, name string) {
	if name != "" {
		checkName(p, path, name, "a namespace", validation.IsDNS1123Label)
	}
}

func checkName(p *problems, path, name, what string, valid func(string) []string) {
	switch {
	case name == "":
		p.add(path, "required: the name of %s", what)
	case len(valid(name)) > 0:
		p.add(path, "%.128q is not the name of %s; use lower-case letters, digits and -", name, what)
	}
}

func (t *TLSSpec) check(p *problems, path string) {
	together(p, path, "certFile", t.CertFile, "keyFile", t.KeyFile)
	switch {
	case t.SelfSigned && t.CertFile+t.KeyFile != "":
		p.add(path+".selfSigned", "not allowed together with certFile; keep one of the two")
	case !t.SelfSigned && t.CertFile+t.KeyFile == "":
		p.add(path, "set certFile and keyFile, or selfSigned")
	}
}

// checkFiles reads the certificate and its key.
func (t *TLSSpec) checkFiles(p *problems, path string) {
	if t.CertFile == "" || t.KeyFile == "" {
		return
	}
	if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
		p.add(path+".certFile", "%s and %s are no certificate with its key: %s", t.CertFile, t.KeyFile, err)
	}
}

// files are the fields outside of spec that name a file, those that are set.
func (c *EndpointPickerConfig) files() []*string {
	var list []*string
	if f := c.Discovery.File; f != nil {
		list = append(list, &f.Path)
	}
	if k := c.Discovery.Kubernetes; k != nil {
		list = append(list, &k.Kubeconfig)
	}
	if t := c.Server.ExtProcTLS; t != nil {
		list = append(list, &t.CertFile, &t.KeyFile)
	}
	set := list[:0]
	for _, name := range list {
		if *name != "" {
			set = append(set, name)
		}
	}
	return set
}
