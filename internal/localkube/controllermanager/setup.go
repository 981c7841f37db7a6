package controllermanager

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options say where things are kept.
type Options struct {
	// VolumesDir gets a directory for each PersistentVolume.
	VolumesDir string
}

// Setup adds all controllers to a manager.
func Setup(m manager.Manager, o Options) error {
	config := rest.CopyConfig(m.GetConfig())
	config.WarningHandler = rest.NoWarnings{} // deprecated kinds are watched as all others
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(disco))
	if err != nil {
		return err
	}
	volumes, err := filepath.Abs(o.VolumesDir)
	if err != nil {
		return err
	}
	for _, add := range []func(manager.Manager) error{
		(&scheduler{Client: m.GetClient()}).setup,
		(&claims{Client: m.GetClient(), uncached: m.GetAPIReader(), dir: volumes}).setup,
		(&volumesOf{Client: m.GetClient(), dir: volumes}).setup,
		(&disruption{Client: m.GetClient(), mapper: mapper, scales: scales}).setup,
		(&namespaces{Client: m.GetClient(), discovery: disco, objects: objects}).setup,
		newCollector(disco, objects, mapper).setup,
	} {
		if err := add(m); err != nil {
			return err
		}
	}
	return nil
}
