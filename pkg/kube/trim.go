package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Transforms run on every object before it is kept. They may meet an object that
// was trimmed before. A pod has some 10 KB of which we use a few hundred bytes.

// trimPod keeps of a pod what makes it a worker.
func trimPod(annotations []string) func(any) (any, error) {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil // the tombstone of a deletion that was missed
		}
		kept := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			},
			Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
			Status: corev1.PodStatus{PodIP: pod.Status.PodIP, PodIPs: pod.Status.PodIPs},
		}
		for _, name := range annotations {
			if value, present := pod.Annotations[name]; present {
				metav1.SetMetaDataAnnotation(&kept.ObjectMeta, name, value)
			}
		}
		for i := range pod.Spec.Containers {
			kept.Spec.Containers = append(kept.Spec.Containers, trimContainer(&pod.Spec.Containers[i]))
		}
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
				kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
			}
		}
		for i := range pod.Status.ContainerStatuses {
			s := &pod.Status.ContainerStatuses[i]
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses,
				corev1.ContainerStatus{Name: s.Name, Ready: s.Ready, RestartCount: s.RestartCount, Started: s.Started})
		}
		return kept, nil
	}
}

func trimContainer(c *corev1.Container) corev1.Container {
	kept := corev1.Container{Name: c.Name}
	for i := range c.Ports {
		kept.Ports = append(kept.Ports, corev1.ContainerPort{ContainerPort: c.Ports[i].ContainerPort})
	}
	if i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == componentVariable }); i >= 0 {
		kept.Env = []corev1.EnvVar{{Name: componentVariable, Value: c.Env[i].Value}}
	}
	return kept
}

// trimMetadata reads what a worker says of itself and lets go of the text, most of
// which is about the model.
func trimMetadata(object any) (any, error) {
	m, ok := object.(*workerMetadata)
	if !ok || m.said != nil {
		return object, nil
	}
	return &workerMetadata{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
		},
		said: readMetadata(m.Spec),
	}, nil
}

// trimOther drops the record of who wrote which field.
func trimOther(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
