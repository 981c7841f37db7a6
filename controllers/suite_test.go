package controllers_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/clustertest"
	"github.com/highwater-io/highwater/controllers/setup"
	"github.com/highwater-io/highwater/internal/testenv"
	"github.com/highwater-io/highwater/internal/testscale"
)

// api is the administrator's client; it reads from the API server.
var api client.Client

// operatorImage is what nodes run when the ReplicaSet names no image.
const operatorImage = "example.com/highwater:test"

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(testscale.Duration(20 * time.Second))
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	SetDefaultConsistentlyDuration(500 * time.Millisecond)
	SetDefaultConsistentlyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Controllers on a real API server")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(logr.FromSlogHandler(testLog()))
	stop, config, err := testenv.Start(context.Background())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(stop()).To(Succeed()) })
	scheme, err := setup.Scheme()
	Expect(err).NotTo(HaveOccurred())
	api, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	applyRBAC()

	// The operator acts with the rights of the ServiceAccount that is shipped, and no others.
	own := rest.CopyConfig(config)
	own.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:highwater-system:highwater-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:highwater-system", "system:authenticated"},
	}
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme: scheme, Cache: setup.CacheOptions(nil), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	Expect(setup.Controllers(ctx, mgr, clusters.open, operatorImage)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
		Expect(clusters.openConnections()).To(BeZero(), "the end of the manager closes every connection")
	})
})

// applyRBAC makes what config/rbac ships.
func applyRBAC() {
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "rbac", "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	files = append(files, filepath.Join(testenv.Root(), "config", "manager", "namespace.yaml"))
	var later []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(text, &object.Object)).To(Succeed())
		switch object.GetKind() {
		case "Kustomization":
		case "Namespace":
			Expect(api.Create(context.Background(), object)).To(Succeed())
		default:
			later = append(later, object)
		}
	}
	Expect(later).NotTo(BeEmpty())
	for _, object := range later {
		Expect(api.Create(context.Background(), object)).To(Succeed(), object.GetName())
	}
}

// clusters gives each namespace a cluster of its own.
var clusters = &farm{all: map[string]*clustertest.Cluster{}}

type farm struct {
	mu  sync.Mutex
	all map[string]*clustertest.Cluster
}

func (f *farm) of(namespace string) *clustertest.Cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[namespace] == nil {
		f.all[namespace] = clustertest.New()
	}
	return f.all[namespace]
}

func (f *farm) open(target cluster.Target, notify func(cluster.Change)) cluster.Connection {
	return f.of(target.ReplicaSet.Namespace).Open(target, notify)
}

func (f *farm) openConnections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.all {
		n += c.Connections()
	}
	return n
}

// forbidden are the log lines in which the API server refused the operator something.
var forbidden struct {
	sync.Mutex
	lines []string
}

func noteForbidden(line string) {
	if strings.Contains(line, "is forbidden") && !strings.Contains(line, "because it is being terminated") {
		forbidden.Lock()
		defer forbidden.Unlock()
		forbidden.lines = append(forbidden.lines, line)
	}
}

var _ = AfterSuite(func() {
	forbidden.Lock()
	defer forbidden.Unlock()
	Expect(forbidden.lines).To(BeEmpty(), "the shipped rights are too narrow")
})
