package localkube

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/highwater-io/highwater/internal/localkube/kubelet"
	"github.com/highwater-io/highwater/internal/testscale"
)

const image = "app:test"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "app" {
		os.Exit(app(os.Args[1:]))
	}
	if dir := os.Getenv("LOCALKUBE_TEST_PARENT"); dir != "" {
		runParent(dir)
	}
	flag.Parse()
	ctrllog.SetLogger(logr.FromSlogHandler(slog.DiscardHandler))
	// These tests wait for other processes far more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.RemoveAll(binDir())
	os.Exit(code)
}

// binDir holds the test binary under the name app.
var binDir = sync.OnceValue(func() string {
	if dir := os.Getenv("LOCALKUBE_TEST_BIN"); dir != "" {
		return dir // the killed parent's: whoever killed it removes it
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "localkube-bin-")
	if err != nil {
		panic(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "app")); err != nil {
		panic(err)
	}
	return dir
})

func options() Options {
	return Options{
		Progress: os.Stderr, Images: kubelet.Images{image: {Dir: binDir(), Entrypoint: []string{"/app"}}},
		Backoff: kubelet.Backoff{Initial: 500 * time.Millisecond, Max: 5 * time.Second},
	}
}

var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// env is one test's namespace in the cluster that most tests share.
type env struct {
	*testing.T
	c  *Cluster
	k  client.Client
	ns string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = Start(context.Background(), options()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return envIn(t, shared.cluster)
}

func envIn(t *testing.T, c *Cluster) *env {
	t.Helper()
	k, err := client.New(c.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{T: t, c: c, k: k}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	e.must(k.Create(t.Context(), ns))
	e.ns = ns.Name
	return e
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// eventually waits until cond returns no error.
func (e *env) eventually(what string, cond func() error) {
	e.Helper()
	deadline := time.Now().Add(testscale.Duration(40 * time.Second))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}

// pod is one that serves HTTP, with a readiness probe each second.
func (e *env) pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name, Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{
			Subdomain: "nodes", TerminationGracePeriodSeconds: ptr.To(int64(20)),
			Containers: []corev1.Container{{
				Name: "app", Image: image, Args: []string{"serve"},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")}}},
			}},
		},
	}
}

func (e *env) create(o client.Object) {
	e.Helper()
	o.SetNamespace(e.ns)
	e.must(e.k.Create(e.Context(), o))
}

func (e *env) get(name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := e.k.Get(e.Context(), client.ObjectKey{Namespace: e.ns, Name: name}, &pod)
	return &pod, err
}

func (e *env) ready(name string) *corev1.Pod {
	e.Helper()
	return e.readiness(name, true)
}

func (e *env) readiness(name string, want bool) *corev1.Pod {
	e.Helper()
	var pod *corev1.Pod
	e.eventually(fmt.Sprintf("pod %s to be ready=%v", name, want), func() error {
		var err error
		if pod, err = e.get(name); err != nil {
			return err
		}
		if isReady(pod) != want {
			return fmt.Errorf("it is %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (e *env) isGone(o client.Object) {
	e.Helper()
	e.eventually(fmt.Sprintf("%T %s to be gone", o, o.GetName()), func() error {
		uid := o.GetUID()
		err := e.k.Get(e.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) || err == nil && uid != "" && o.GetUID() != uid {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there, deletion %v, finalizers %v", o.GetDeletionTimestamp(), o.GetFinalizers())
		}
		return err
	})
}

// ask calls the app in a pod and returns its answer.
func (e *env) ask(pod, path string, form ...string) (string, error) {
	addr, ok := e.c.PodAddress(e.ns, pod, "http")
	if !ok {
		return "", fmt.Errorf("pod %s has no address", pod)
	}
	values := url.Values{}
	for i := 0; i < len(form); i += 2 {
		values.Set(form[i], form[i+1])
	}
	client := http.Client{Timeout: testscale.Duration(10 * time.Second), Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.PostForm("http://"+addr+path, values)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// call is ask that must work.
func (e *env) call(pod, path string, form ...string) string {
	e.Helper()
	answer, err := e.ask(pod, path, form...)
	e.must(err)
	return answer
}

func (e *env) answers(want, pod, path string, form ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("%s of %s to answer %q", path, pod, want), func() error {
		got, err := e.ask(pod, path, form...)
		if err == nil && got != want {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

func (e *env) claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func withVolume(pod *corev1.Pod, path string, source corev1.VolumeSource) *corev1.Pod {
	name := fmt.Sprintf("v%d", len(pod.Spec.Volumes))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
	return pod
}
