package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/warmpath/warmpath/api/v1alpha1"
	"github.com/warmpath/warmpath/pkg/gateway"
)

// policy writes the RoutingPolicy of the pool, as kubectl apply does. spec is all
// of it but targetRef.
func (d *deployment) policy(spec object) {
	d.t.Helper()
	all := object{"targetRef": object{"name": release}}
	maps.Copy(all, spec)
	d.apply(object{
		"apiVersion": v1alpha1.APIVersion, "kind": "RoutingPolicy",
		"metadata": object{"name": release, "namespace": d.ns}, "spec": all,
	})
}

// deletePolicy deletes it.
func (d *deployment) deletePolicy() {
	d.t.Helper()
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: release, Namespace: d.ns}}
	if err := d.c.Client().Delete(d.t.Context(), p); err != nil {
		d.t.Fatal(err)
	}
}

// livePolicy reads it.
func (d *deployment) livePolicy() *v1alpha1.RoutingPolicy {
	d.t.Helper()
	p := &v1alpha1.RoutingPolicy{}
	if err := d.c.Client().Get(d.t.Context(), client.ObjectKey{Namespace: d.ns, Name: release}, p); err != nil {
		d.t.Fatal(err)
	}
	return p
}

// awaitCondition waits until the policy's status has a condition, found of what the
// policy says now, and returns its message.
func (d *deployment) awaitCondition(kind string, status metav1.ConditionStatus, reason string) string {
	d.t.Helper()
	var last *metav1.Condition
	defer func() {
		if d.t.Failed() {
			d.t.Logf("the last condition was %+v", last)
		}
	}()
	eventually(d.t, fmt.Sprintf("%s is %s, %s", kind, status, reason), func() bool {
		p := d.livePolicy()
		last = meta.FindStatusCondition(p.Status.Conditions, kind)
		return last != nil && last.Status == status && last.Reason == reason && last.ObservedGeneration == p.Generation
	})
	return last.Message
}

// columns is the policy as kubectl get shows it: values by the names of columns.
func (d *deployment) columns() map[string]string {
	d.t.Helper()
	config := d.c.Config()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		d.t.Fatal(err)
	}
	url := fmt.Sprintf("%s/apis/%s/namespaces/%s/routingpolicies/%s", config.Host, v1alpha1.APIVersion, d.ns, release)
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := httpClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(data, &table); err != nil || len(table.Rows) != 1 {
		d.t.Fatalf("%s: %v: %s", url, err, data)
	}
	row := map[string]string{}
	for i, cell := range table.Rows[0].Cells {
		if cell != nil {
			row[strings.ToUpper(table.ColumnDefinitions[i].Name)] = fmt.Sprint(cell)
		}
	}
	return row
}

// awaitColumns waits until kubectl get shows these values.
func (d *deployment) awaitColumns(want map[string]string) {
	d.t.Helper()
	var row map[string]string
	defer func() {
		if d.t.Failed() {
			d.t.Logf("kubectl get shows %v", row)
		}
	}()
	eventually(d.t, fmt.Sprintf("kubectl get shows %v", want), func() bool {
		row = d.columns()
		for name, value := range want {
			if row[name] != value {
				return false
			}
		}
		return true
	})
}

// TestClusterPrefixSticks installs all with the chart, sends requests, and looks at
// what kubectl get shows.
func TestClusterPrefixSticks(t *testing.T) {
	t.Parallel()
	d := install(t, cluster(t), `routingPolicy.create=true`, `routingPolicy.spec={"eventPlane":{"speculationTTL":"0s"}}`)
	prefill, decode := d.pods(true)
	d.run("epp-0")
	d.startGateway(gateway.Config{})
	d.awaitColumns(map[string]string{"NAME": release, "READY": "True", "PREFILL": "2", "DECODE": "2"})
	for i := range 3 {
		r := d.sticks(tokens(i, 20*blockSize), prefill)
		// The prefill worker's name comes from the worker at the address in the header.
		named(t, r.decode(), decode)
	}
	var handed uint64
	for _, w := range decode {
		handed += w.stats(t).HandshakeDecode
	}
	if handed != 15 {
		t.Errorf("%d of 15 requests were decoded from what a prefill worker had computed", handed)
	}
	d.awaitColumns(map[string]string{"READY": "True", "PREFILL": "2", "DECODE": "2", "EVENTS": "Flowing"})
	d.awaitCondition(v1alpha1.ConditionPrefixAware, metav1.ConditionTrue, "PrefixAware")
	// Of 15 prompts of 20 blocks 12 were known in full.
	d.awaitColumns(map[string]string{"HIT": "80.0%", "CEILING": "80.0%"})
	if p := d.livePolicy(); p.Status.Replica != "epp-0" || p.Status.Workers == nil || p.Status.Workers.Aggregated != 0 {
		t.Errorf("the status is %+v", p.Status)
	}
	for _, w := range []*worker{prefill[0], decode[0]} {
		d.c.SetReady(t, d.ns, w.name, false)
	}
	d.awaitColumns(map[string]string{"PREFILL": "1", "DECODE": "1"})
}
