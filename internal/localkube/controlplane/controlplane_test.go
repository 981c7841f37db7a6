package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/highwater-io/highwater/internal/localkube/assets"
	"github.com/highwater-io/highwater/internal/procs"
)

func start(t *testing.T, dir string) *ControlPlane {
	t.Helper()
	bin, err := assets.Dir(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Options{Assets: bin, Dir: dir, AuditLog: filepath.Join(dir, "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

func clientOf(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestControlPlaneKeepsObjectsAndBindsServiceAccountsToRBAC(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	c := start(t, dir)
	admin := clientOf(t, c.Kubeconfig())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}}}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "reader.kubeconfig")
	if err := c.ServiceAccountKubeconfig(ctx, "default", "reader", file); err != nil {
		t.Fatal(err)
	}
	reader := clientOf(t, file)
	// The API server's authorizer learns of the binding by a watch of its own.
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := reader.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsForbidden(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if _, err := reader.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("listing Secrets without the right: %v, want Forbidden", err)
	}
	url := c.URL()
	c.Stop()
	if left, err := procs.KillLeftovers(filepath.Join(dir, "pids")); err != nil || left != 0 {
		t.Fatalf("%d processes left after Stop, %v", left, err)
	}

	c = start(t, dir)
	if c.URL() != url {
		t.Errorf("after a restart the API server is at %s, was at %s", c.URL(), url)
	}
	if _, err := clientOf(t, file).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the token of before the restart: %v", err)
	}
	audit, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || !strings.Contains(string(audit), `"username":"system:serviceaccount:default:reader"`) {
		t.Errorf("the audit log does not name the ServiceAccount (%d bytes, %v)", len(audit), err)
	}
}

func TestServerThatEndsEarlyIsReportedWithItsLog(t *testing.T) {
	bin, err := assets.Dir(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{Assets: bin, Dir: t.TempDir(), APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Fatalf("Start = %v, want an error with the server's own words", err)
	}
}
