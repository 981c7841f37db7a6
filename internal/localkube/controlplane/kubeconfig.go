package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the cluster's, the context's and the user's name in every kubeconfig written here.
const contextName = "highwater-dev"

// tokenSeconds is how long a ServiceAccount token is good: longer than a local cluster runs in one piece.
const tokenSeconds = 365 * 24 * 3600

func (c *ControlPlane) writeKubeconfig(name string, user *api.AuthInfo, namespace string) error {
	config := api.NewConfig()
	config.Clusters[contextName] = &api.Cluster{Server: c.url, CertificateAuthorityData: c.ca.caPEM()}
	config.AuthInfos[contextName] = user
	config.Contexts[contextName] = &api.Context{Cluster: contextName, AuthInfo: contextName, Namespace: namespace}
	config.CurrentContext = contextName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	temp := name + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return os.Rename(temp, name)
}

// Kubeconfig returns the file with which kubectl is cluster admin.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Config returns a client configuration of a cluster admin. The caller may change it.
func (c *ControlPlane) Config() *rest.Config {
	return &rest.Config{
		Host: c.url, QPS: 400, Burst: 800,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.caPEM(), CertData: c.admin.Cert, KeyData: c.admin.Key},
	}
}

// ServiceAccountKubeconfig writes a kubeconfig for an existing ServiceAccount to file. Whoever uses it has the
// rights that RBAC gives to the ServiceAccount and no others.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name, file string) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return c.writeKubeconfig(file, &api.AuthInfo{Token: answer.Status.Token}, namespace)
}

func certUser(p Pair) *api.AuthInfo {
	return &api.AuthInfo{ClientCertificateData: p.Cert, ClientKeyData: p.Key}
}
