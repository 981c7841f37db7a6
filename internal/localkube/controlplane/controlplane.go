package controlplane

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/highwater-io/highwater/internal/procs"
)

// Options say where a control plane lives and what it keeps.
type Options struct {
	Assets string // directory with etcd and kube-apiserver
	Dir    string // data, certificates, logs; made when missing
	// AuditLog is the file to which the API server writes who did what (level Metadata, one line for each finished
	// request); empty for none.
	AuditLog string
	// APIServerArgs are appended to the API server's arguments.
	APIServerArgs []string
	// KubeletHosts are the addresses that the certificate returned by Kubelet is good for.
	KubeletHosts []string
}

// ControlPlane is a running etcd with its API server.
type ControlPlane struct {
	dir        string
	url        string
	ca         *authority
	admin      Pair
	kubelet    Pair
	kubeconfig string
	etcd       *procs.Process
	apiserver  *procs.Process
}

// startTimeout bounds the wait for a server that neither ends nor becomes ready; on an idle machine it takes 5 s.
const startTimeout = 3 * time.Minute

// Start runs etcd and kube-apiserver and returns when the API server is ready. Both end with this process. A
// directory that an earlier control plane used is taken up with its objects.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	for _, sub := range []string{"logs", "pids"} {
		if err := os.MkdirAll(filepath.Join(o.Dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("make the control plane's directory: %w", err)
		}
	}
	c := &ControlPlane{dir: o.Dir, kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	var err error
	if c.ca, err = openAuthority(filepath.Join(o.Dir, "pki")); err != nil {
		return nil, err
	}
	server, err := c.ca.sign("kube-apiserver", pkix.Name{CommonName: "kube-apiserver"},
		"127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.0.0.1")
	if err != nil {
		return nil, err
	}
	if c.admin, err = c.ca.sign("admin", pkix.Name{CommonName: "highwater-dev-admin", Organization: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	if c.kubelet, err = c.ca.sign("kubelet", pkix.Name{CommonName: "kubelet"}, o.KubeletHosts...); err != nil {
		return nil, err
	}
	etcdURL, err := c.startEtcd(ctx, o, server)
	if err == nil {
		err = c.startAPIServer(ctx, o, server, etcdURL)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ControlPlane) startEtcd(ctx context.Context, o Options, cert Pair) (url string, err error) {
	client, err := pickPort(filepath.Join(o.Dir, "etcd.port"))
	if err != nil {
		return "", err
	}
	peer, err := pickPort(filepath.Join(o.Dir, "etcd-peer.port"))
	if err != nil {
		return "", err
	}
	url = "https://127.0.0.1:" + strconv.Itoa(client)
	peerURL := "https://127.0.0.1:" + strconv.Itoa(peer)
	c.etcd, err = c.spawn("etcd", o.Assets,
		"--name=dev", "--data-dir="+filepath.Join(o.Dir, "etcd"),
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=dev="+peerURL,
		"--cert-file="+cert.CertFile, "--key-file="+cert.KeyFile, "--client-cert-auth", "--trusted-ca-file="+c.ca.caFile(),
		"--peer-cert-file="+cert.CertFile, "--peer-key-file="+cert.KeyFile, "--peer-client-cert-auth", "--peer-trusted-ca-file="+c.ca.caFile(),
		// Only a crash of the whole machine loses what was not synced, and a local cluster may.
		"--unsafe-no-fsync", "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m", "--log-level=warn")
	if err != nil {
		return "", err
	}
	return url, c.await(ctx, c.etcd, "etcd", url+"/health")
}

func (c *ControlPlane) startAPIServer(ctx context.Context, o Options, cert Pair, etcdURL string) error {
	port, err := pickPort(filepath.Join(o.Dir, "apiserver.port"))
	if err != nil {
		return err
	}
	tokenKey, err := c.ca.tokenKey()
	if err != nil {
		return err
	}
	c.url = "https://127.0.0.1:" + strconv.Itoa(port)
	ca := c.ca.caFile()
	args := []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // a loopback address is no valid endpoint, and nothing plays Services
		"--etcd-servers=" + etcdURL, "--etcd-cafile=" + ca, "--etcd-certfile=" + c.admin.CertFile, "--etcd-keyfile=" + c.admin.KeyFile,
		"--tls-cert-file=" + cert.CertFile, "--tls-private-key-file=" + cert.KeyFile, "--client-ca-file=" + ca,
		"--kubelet-certificate-authority=" + ca, "--kubelet-client-certificate=" + c.admin.CertFile, "--kubelet-client-key=" + c.admin.KeyFile,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + tokenKey,
		"--service-account-signing-key-file=" + tokenKey, "--service-cluster-ip-range=10.0.0.0/16",
		"--authorization-mode=RBAC", "--allow-privileged=true", "--profiling=false",
		// Without it every pod would wait for its namespace's default ServiceAccount, which nobody makes, and
		// would get a token that no pod here wants.
		"--disable-admission-plugins=ServiceAccount",
	}
	if o.AuditLog != "" {
		policy := filepath.Join(o.Dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
			return err
		}
		args = append(args, "--audit-log-path="+o.AuditLog, "--audit-policy-file="+policy)
	}
	c.apiserver, err = c.spawn("kube-apiserver", o.Assets, append(args, o.APIServerArgs...)...)
	if err != nil {
		return err
	}
	if err := c.await(ctx, c.apiserver, "kube-apiserver", c.url+"/readyz"); err != nil {
		return err
	}
	return c.writeKubeconfig(c.kubeconfig, certUser(c.admin), "default")
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *ControlPlane) spawn(name, assets string, args ...string) (*procs.Process, error) {
	log, err := os.OpenFile(c.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return procs.Start(procs.Spec{
		Path: filepath.Join(assets, name), Args: args, Dir: c.dir, Env: os.Environ(),
		Stdout: log, Stderr: log, PidFile: filepath.Join(c.dir, "pids", name+procs.Suffix),
	})
}

func (c *ControlPlane) logFile(name string) string { return filepath.Join(c.dir, "logs", name+".log") }

// await returns when url answers 200; with an error when the process ends before that.
func (c *ControlPlane) await(ctx context.Context, p *procs.Process, name, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: c.Config().TLSClientConfig})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	var last error
	for {
		resp, err := client.Get(url)
		if err != nil {
			last = err
		} else {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = errors.New(resp.Status)
		}
		select {
		case <-p.Done():
			_, code, _ := p.Ended()
			return fmt.Errorf("%s ended with %d before it was ready; the end of %s:\n%s", name, code, c.logFile(name), tail(c.logFile(name)))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w; log: %s)", name, ctx.Err(), last, c.logFile(name))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func tail(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	data = data[max(0, len(data)-16<<10):]
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// URL is the API server's address.
func (c *ControlPlane) URL() string { return c.url }

// CA returns the authority that signs everything in this cluster, as PEM.
func (c *ControlPlane) CA() []byte { return c.ca.caPEM() }

// Kubelet returns the certificate with which a kubelet on KubeletHosts serves logs to the API server.
func (c *ControlPlane) Kubelet() Pair { return c.kubelet }

// Done is closed when the API server ends, wanted or not.
func (c *ControlPlane) Done() <-chan struct{} { return c.apiserver.Done() }

// Stop ends the API server and then etcd, and returns when both are gone.
func (c *ControlPlane) Stop() {
	if c.apiserver != nil {
		// It would otherwise wait up to a minute for open watches; what it has acknowledged is in etcd already.
		c.apiserver.Stop(time.Second)
	}
	if c.etcd != nil {
		c.etcd.Stop(10 * time.Second)
	}
}
