// Package testenv starts a real API server with this project's CRDs for tests.
package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/highwater-io/highwater/internal/localkube/assets"
	"github.com/highwater-io/highwater/internal/testscale"
)

// Root is the directory of the checkout, found from the test's working directory, since -trimpath leaves no other
// trace of it.
func Root() string {
	start, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for dir := start; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir
		}
	}
	panic(start + " is not within the checkout")
}

// Run starts an API server, hands the connection of its administrator to use, runs the tests and stops the server.
// It is called from TestMain and returns the exit code.
func Run(m *testing.M, use func(*rest.Config)) int {
	stop, config, err := Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(config)
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// Start starts an API server with the CRDs installed. The executables come from where assets.Dir finds them, which
// may build them first.
func Start(ctx context.Context) (stop func() error, config *rest.Config, err error) {
	binaries, err := assets.Dir(ctx, os.Stderr)
	if err != nil {
		return nil, nil, fmt.Errorf("find an API server for tests: %w", err)
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		CRDDirectoryPaths:        []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: testscale.Duration(time.Minute),
		ControlPlaneStopTimeout:  testscale.Duration(time.Minute),
	}
	config, err = environment.Start()
	if err != nil {
		return nil, nil, fmt.Errorf("start an API server for tests: %w", err)
	}
	return environment.Stop, config, nil
}
