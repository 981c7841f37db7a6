package v1alpha1_test

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/testenv"
)

var api client.Client

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, func(config *rest.Config) {
		scheme := runtime.NewScheme()
		if err := hwv1alpha1.AddToScheme(scheme); err != nil {
			panic(err)
		}
		var err error
		if api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
			panic(err)
		}
	}))
}
