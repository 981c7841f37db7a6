package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of the authority and of everything it signs. A local cluster is restarted more often than that, and
// each start signs anew.
const validity = 10 * 365 * 24 * time.Hour

// authority signs all certificates of one cluster. It lives in the cluster's directory, so that a kubeconfig
// stays good over restarts.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// Pair names the files of a certificate and its key, and holds them as PEM.
type Pair struct {
	CertFile, KeyFile string
	Cert, Key         []byte
}

func openAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for certificates: %w", err)
	}
	a := &authority{dir: dir}
	keyFile, certFile := filepath.Join(dir, "ca.key"), a.caFile()
	loaded, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil {
		key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("%s is not an ECDSA key", keyFile)
		}
		a.key, a.cert = key, loaded.Leaf
		return a, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load the cluster's certificate authority: %w", err)
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "highwater local cluster"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := writeKey(keyFile, a.key); err != nil {
		return nil, err
	}
	return a, os.WriteFile(certFile, certPEM(der), 0o644)
}

func (a *authority) caFile() string { return filepath.Join(a.dir, "ca.crt") }

func (a *authority) caPEM() []byte { return certPEM(a.cert.Raw) }

// sign makes a certificate that is good for both sides of a connection and writes it to name.crt and name.key.
func (a *authority) sign(name string, subject pkix.Name, hosts ...string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	pair := Pair{CertFile: filepath.Join(a.dir, name+".crt"), KeyFile: filepath.Join(a.dir, name+".key"), Cert: certPEM(der)}
	if err := os.WriteFile(pair.CertFile, pair.Cert, 0o644); err != nil {
		return Pair{}, err
	}
	if err := writeKey(pair.KeyFile, key); err != nil {
		return Pair{}, err
	}
	pair.Key, err = os.ReadFile(pair.KeyFile)
	return pair, err
}

// tokenKey returns the file of the key that signs ServiceAccount tokens; it is made once.
func (a *authority) tokenKey() (string, error) {
	name := filepath.Join(a.dir, "service-account.key")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	return name, writeKey(name, key)
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand does not fail on the systems we run on
	}
	return n
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
