package testcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// connect makes the administrator's configuration and client.
func (c *Cluster) connect() error {
	ca, err := os.ReadFile(c.file(certFile))
	if err != nil {
		return err
	}
	c.config = &rest.Config{
		Host:            c.apiURL(),
		BearerToken:     adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
		QPS:             -1, // no limit
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensionsv1.AddToScheme, inferencev1.Install, gatewayv1.Install, v1alpha1.AddToScheme,
	} {
		if err := add(known); err != nil {
			return err
		}
	}
	c.client, err = client.New(c.config, client.Options{Scheme: known})
	return err
}

// closeIdle closes the connections of a configuration's clients, which share one
// transport.
func closeIdle(config *rest.Config) {
	if t, err := rest.TransportFor(config); err == nil {
		utilnet.CloseIdleConnectionsFor(t)
	}
}

// Namespace makes a namespace for one test and returns its name. It stays: nothing
// in this cluster would empty it.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := c.client.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// ServiceAccountConfig returns a configuration that reaches the API server as a
// service account, which is made when it is missing. It may do what its roles allow,
// which without roles is nothing.
func (c *Cluster) ServiceAccountConfig(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.client.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("service account %s/%s: %v", namespace, name, err)
	}
	hour := int64(time.Hour / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour}}
	if err := c.client.SubResource("token").Create(ctx, account, request); err != nil {
		t.Fatalf("token of service account %s/%s: %v", namespace, name, err)
	}
	config := c.Config()
	config.BearerToken = request.Status.Token
	return config
}

// May says whether the API server lets a service account do something in its
// namespace. It goes by roles a little later than they are written: what is started
// before that is refused what it may do.
func (c *Cluster) May(t testing.TB, namespace, account, verb, group, resource string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + namespace + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource},
	}}
	if err := c.client.Create(ctx, review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// KubeconfigOf is a configuration in the form that programs are given in a file. Its
// namespace is the one named, as in a pod of that namespace.
func KubeconfigOf(config *rest.Config, namespace string) *clientcmdapi.Config {
	const name = "test"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	file.CurrentContext = name
	return file
}

// Kubeconfig writes [KubeconfigOf] to a file of the test and returns its path.
func Kubeconfig(t testing.TB, config *rest.Config, namespace string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*KubeconfigOf(config, namespace), path); err != nil {
		t.Fatal(fmt.Errorf("write %s: %w", path, err))
	}
	return path
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}
