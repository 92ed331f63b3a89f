package chart

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// pod is a pod's spec, and one container of it.
type pod struct {
	spec, container object
}

// podOf finds a container of the objects of a kind.
func podOf(t *testing.T, all []object, kind, container string) pod {
	t.Helper()
	for _, o := range ofKind(all, kind) {
		spec := podSpec(o)
		for _, c := range list(spec["containers"]) {
			if c["name"] == container {
				return pod{spec, c}
			}
		}
	}
	t.Fatalf("no %s has a container %s", kind, container)
	return pod{}
}

// podSpec is the spec of the pods that an object makes, nil when it makes none.
func podSpec(o object) object {
	switch text(o, "kind") {
	case "Pod":
		return at(o, "spec").(object)
	case "Deployment":
		return at(o, "spec", "template", "spec").(object)
	}
	return nil
}

// list is a list of objects.
func list(v any) []object {
	items, _ := v.([]any)
	var all []object
	for _, i := range items {
		all = append(all, i.(object))
	}
	return all
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestRestricted checks every pod against the restricted Pod Security Standard, and
// that each container says what it needs.
func TestRestricted(t *testing.T) {
	for name, file := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := 0
			for _, o := range objects(t, render(t, "-f", file)) {
				spec := podSpec(o)
				if spec == nil {
					continue
				}
				pods++
				for _, fault := range restricted(spec) {
					t.Errorf("%s: %s", id(o), fault)
				}
			}
			if pods < 2 { // the picker, and the one that tests it
				t.Errorf("%d pods", pods)
			}
		})
	}
}

// restricted lists what a pod has that the restricted standard forbids, and what it
// lacks.
func restricted(spec object) (faults []string) {
	for _, field := range []string{"hostNetwork", "hostPID", "hostIPC", "hostUsers"} {
		if spec[field] != nil {
			faults = append(faults, field+" is set")
		}
	}
	if _, explicit := spec["automountServiceAccountToken"]; !explicit {
		faults = append(faults, "automountServiceAccountToken is not explicit")
	}
	for _, v := range list(spec["volumes"]) {
		for kind := range v {
			if !slices.Contains([]string{"name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}, kind) {
				faults = append(faults, fmt.Sprintf("volume %v is a %s", v["name"], kind))
			}
		}
	}
	if at(spec, "securityContext", "runAsNonRoot") != true || at(spec, "securityContext", "runAsUser") == float64(0) {
		faults = append(faults, "may run as root")
	}
	if text(spec, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
		faults = append(faults, "no seccomp profile")
	}
	containers := append(list(spec["containers"]), list(spec["initContainers"])...)
	for _, c := range containers {
		add := func(fault string) { faults = append(faults, fmt.Sprintf("container %v %s", c["name"], fault)) }
		s, _ := c["securityContext"].(object)
		if s["allowPrivilegeEscalation"] != false {
			add("may gain privileges")
		}
		if s["privileged"] != nil {
			add("sets privileged")
		}
		if s["readOnlyRootFilesystem"] != true {
			add("may write to its image")
		}
		if drop, _ := at(s, "capabilities", "drop").([]any); !slices.Contains(drop, any("ALL")) || at(s, "capabilities", "add") != nil {
			add("keeps capabilities")
		}
		if at(c, "resources", "requests", "cpu") == nil || at(c, "resources", "limits", "memory") == nil {
			add("does not say what it needs")
		}
		for _, p := range list(c["ports"]) {
			if p["hostPort"] != nil {
				add("has a port of the host")
			}
		}
	}
	return faults
}

// TestRestrictedFinds keeps the check above honest.
func TestRestrictedFinds(t *testing.T) {
	all := objects(t, render(t,
		"--set", "podSecurityContext.runAsNonRoot=false",
		"--set", "securityContext.allowPrivilegeEscalation=true",
		"--set", "securityContext.privileged=true",
		"--set", "securityContext.capabilities.drop={CHOWN}",
		"--set", "extraVolumes[0].name=host", "--set", "extraVolumes[0].hostPath.path=/"))
	faults := restricted(podSpec(ofKind(all, "Deployment")[0]))
	if len(faults) != 5 {
		t.Errorf("of 5 faults found %d: %q", len(faults), faults)
	}
}

// TestNoResources checks that the picker's resources can be left to the cluster.
func TestNoResources(t *testing.T) {
	p := podOf(t, objects(t, render(t, "--set", "resources=null")), "Deployment", "epp")
	if r := p.container["resources"]; r != nil {
		t.Errorf("resources: %v", r)
	}
	for _, e := range list(p.container["env"]) {
		if text(e, "name") == "GOMEMLIMIT" {
			t.Errorf("without a limit of memory GOMEMLIMIT is %v", e["value"])
		}
	}
}

// TestPickerPod checks what the picker's process needs.
func TestPickerPod(t *testing.T) {
	all := objects(t, render(t, "--set", "config.server.metricsAddress=:9191", "--set", "config.server.drainTimeout=1m30.5s", "--set", "resources.limits.memory=1Gi"))
	p := podOf(t, all, "Deployment", "epp")
	env := map[string]any{}
	for _, e := range list(p.container["env"]) {
		env[text(e, "name")] = e["value"]
		if path := text(e, "valueFrom", "fieldRef", "fieldPath"); path != "" {
			env[text(e, "name")] = path
		}
	}
	for name, want := range map[string]any{"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP", "GOMEMLIMIT": "921MiB"} {
		if env[name] != want {
			t.Errorf("%s is %v, want %v", name, env[name], want)
		}
	}
	ports := map[string]any{}
	for _, port := range list(p.container["ports"]) {
		ports[text(port, "name")] = port["containerPort"]
	}
	for name, want := range map[string]float64{"grpc-ext-proc": 9002, "grpc-health": 9003, "recovery": 9004, "http-metrics": 9191} {
		if ports[name] != want {
			t.Errorf("port %s is %v, want %v", name, ports[name], want)
		}
	}
	for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		if text(p.container, probe, "httpGet", "port") != "http-metrics" {
			t.Errorf("%s: %v", probe, p.container[probe])
		}
	}
	// 90.5 s to drain, 5 before it, 15 to spare.
	if got := p.spec["terminationGracePeriodSeconds"]; got != float64(91+5+15) {
		t.Errorf("grace period %v", got)
	}
}

// TestConfigChangeRollsPods checks that a change of the configuration, and only
// that, makes new pods.
func TestConfigChangeRollsPods(t *testing.T) {
	checksum := func(args ...string) string {
		d := ofKind(objects(t, render(t, args...)), "Deployment")[0]
		return text(d, "spec", "template", "metadata", "annotations", "checksum/config")
	}
	before := checksum()
	if before == "" || before != checksum("--set", "podLabels.a=b") {
		t.Error("the checksum is of something else")
	}
	if before == checksum("--set", "config.spec.blockSize=64") {
		t.Error("a change of the configuration does not reach running pickers")
	}
}
