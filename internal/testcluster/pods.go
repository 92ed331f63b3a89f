package testcluster

import (
	"cmp"
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pod is a pod as a kubelet would run and report it.
type Pod struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	// IPs are the addresses, the first of which is status.podIP. None: it has no
	// address yet.
	IPs      []string
	NotReady bool
	// Node is where it runs; the constant [Node] when empty.
	Node string
	// Containers is one container "main" without ports when empty.
	Containers []corev1.Container
}

// CreatePod makes a pod, and reports it as running.
func (c *Cluster) CreatePod(t testing.TB, p Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	containers := p.Containers
	if len(containers) == 0 {
		containers = []corev1.Container{{Name: "main", Image: "none"}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations},
		Spec:       corev1.PodSpec{NodeName: cmp.Or(p.Node, Node), Containers: containers},
	}
	if err := c.client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	setIPs(pod, p.IPs)
	for _, container := range containers {
		started := true
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Started: &started, Ready: !p.NotReady,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	setReady(pod, !p.NotReady)
	if err := c.client.Status().Update(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

// SetReady reports a pod and its containers as ready, or not.
func (c *Cluster) SetReady(t testing.TB, namespace, name string, ready bool) {
	t.Helper()
	c.report(t, namespace, name, func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].Ready = ready
		}
		setReady(pod, ready)
	})
}

// SetContainerReady reports one container; the pod is ready when all are.
func (c *Cluster) SetContainerReady(t testing.TB, namespace, name, container string, ready bool) {
	t.Helper()
	c.report(t, namespace, name, func(pod *corev1.Pod) {
		all := true
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
				s.Ready = ready
			}
			all = all && pod.Status.ContainerStatuses[i].Ready
		}
		setReady(pod, all)
	})
}

// SetIPs reports other addresses.
func (c *Cluster) SetIPs(t testing.TB, namespace, name string, ips ...string) {
	t.Helper()
	c.report(t, namespace, name, func(pod *corev1.Pod) { setIPs(pod, ips) })
}

// Restart reports that a container has begun anew once more. An empty name means
// all containers.
func (c *Cluster) Restart(t testing.TB, namespace, name, container string) {
	t.Helper()
	c.report(t, namespace, name, func(pod *corev1.Pod) {
		for i := range pod.Status.ContainerStatuses {
			if s := &pod.Status.ContainerStatuses[i]; container == "" || s.Name == container {
				s.RestartCount++
			}
		}
	})
}

// TerminatePod asks for a pod's end, which does not come: it stays with a
// deletionTimestamp until [Cluster.DeletePod].
func (c *Cluster) TerminatePod(t testing.TB, namespace, name string) {
	t.Helper()
	c.deletePod(t, namespace, name, 600)
}

// DeletePod removes a pod at once.
func (c *Cluster) DeletePod(t testing.TB, namespace, name string) {
	t.Helper()
	c.deletePod(t, namespace, name, 0)
}

func (c *Cluster) deletePod(t testing.TB, namespace, name string, grace int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.client.Delete(ctx, pod, client.GracePeriodSeconds(grace)); err != nil {
		t.Fatal(err)
	}
}

// report changes the status of a pod.
func (c *Cluster) report(t testing.TB, namespace, name string, change func(*corev1.Pod)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod := new(corev1.Pod)
		if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
			return err
		}
		change(pod)
		return c.client.Status().Update(ctx, pod)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func setIPs(pod *corev1.Pod, ips []string) {
	pod.Status.PodIP, pod.Status.PodIPs = "", nil
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		pod.Status.PodIP = ips[0]
	}
}

// setReady writes the condition Ready, with the time at which it changed.
func setReady(pod *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.NewTime(time.Now())
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, now
			}
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodReady, Status: status, LastTransitionTime: now,
	})
}
