package controllermanager

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// collector is the garbage collector: it deletes what has lost all its owners, and carries out foreground and orphan
// deletion. It watches the metadata of every kind that can be deleted, custom ones as soon as they are served.
type collector struct {
	discovery discovery.DiscoveryInterface
	objects   metadata.Interface
	mapper    meta.ResettableRESTMapper
	log       logr.Logger
	queue     workqueue.TypedRateLimitingInterface[types.UID]
	refresh   chan struct{}

	mu         sync.Mutex
	watches    map[schema.GroupVersionResource]*watch
	known      map[types.UID]object
	dependents map[types.UID]map[types.UID]bool // owner -> what names it
	absent     map[types.UID]bool               // owners that were looked for in vain; a UID never comes back
}

// object is what the collector keeps of an object.
type object struct {
	metav1.ObjectMeta
	resource schema.GroupVersionResource
}

func (o object) deleting(finalizer string) bool {
	return o.DeletionTimestamp != nil && slices.Contains(o.Finalizers, finalizer)
}

type watch struct {
	stop   chan struct{}
	synced cache.InformerSynced
}

// Times at which new kinds are looked for after a CustomResourceDefinition changed, since it takes a moment until
// discovery serves them; and without any reason.
var refreshAfter = []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 10 * time.Second}

const refreshEvery = time.Minute

func newCollector(d discovery.DiscoveryInterface, objects metadata.Interface, mapper meta.ResettableRESTMapper) *collector {
	return &collector{
		discovery: d, objects: objects, mapper: mapper,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](50*time.Millisecond, 10*time.Second)),
		refresh: make(chan struct{}, 1), watches: map[schema.GroupVersionResource]*watch{}, known: map[types.UID]object{},
		dependents: map[types.UID]map[types.UID]bool{}, absent: map[types.UID]bool{},
	}
}

func (c *collector) setup(m manager.Manager) error {
	c.log = m.GetLogger().WithName("collector")
	return m.Add(manager.RunnableFunc(c.run))
}

func (c *collector) run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { c.keepWatches(ctx) })
	all.Go(func() {
		for {
			uid, quit := c.queue.Get()
			if quit {
				return
			}
			if err := c.collect(ctx, uid); err != nil && ctx.Err() == nil {
				c.log.V(1).Info("try again", "uid", uid, "reason", err.Error())
				c.queue.AddRateLimited(uid)
			} else {
				c.queue.Forget(uid)
			}
			c.queue.Done(uid)
		}
	})
	<-ctx.Done()
	c.queue.ShutDown()
	all.Wait()
	return nil
}

// keepWatches watches all kinds that are served, and ends watches of kinds that are not any more.
func (c *collector) keepWatches(ctx context.Context) {
	var informers sync.WaitGroup
	pending := slices.Clone(refreshAfter)
	last := time.Now()
	for {
		next := refreshEvery
		if len(pending) > 0 {
			next = time.Until(last.Add(pending[0]))
		}
		timer := time.NewTimer(max(0, next))
		select {
		case <-ctx.Done():
			timer.Stop()
			c.mu.Lock()
			for _, w := range c.watches {
				close(w.stop)
			}
			c.watches = map[schema.GroupVersionResource]*watch{}
			c.mu.Unlock()
			informers.Wait()
			return
		case <-c.refresh:
			pending, last = slices.Clone(refreshAfter), time.Now()
			timer.Stop()
			continue
		case <-timer.C:
			if len(pending) > 0 {
				pending = pending[1:]
			}
		}
		resources, err := deletable(c.discovery, func(r metav1.APIResource) bool { return r.Name != "events" })
		if err != nil {
			c.log.Error(err, "look for kinds")
			continue
		}
		c.mu.Lock()
		for resource, w := range c.watches {
			if !slices.Contains(resources, resource) {
				close(w.stop)
				delete(c.watches, resource)
			}
		}
		for _, resource := range resources {
			if c.watches[resource] == nil {
				c.watches[resource] = c.startWatch(&informers, resource)
			}
		}
		c.mu.Unlock()
	}
}

func (c *collector) startWatch(informers *sync.WaitGroup, resource schema.GroupVersionResource) *watch {
	informer := metadatainformer.NewFilteredMetadataInformer(c.objects, resource, "", 0, cache.Indexers{}, nil).Informer()
	w := &watch{stop: make(chan struct{}), synced: informer.HasSynced}
	changed := func(o any) {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok {
			c.changed(object{ObjectMeta: m.ObjectMeta, resource: resource})
		}
	}
	// Adding a handler to an informer that was not started can't fail.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if m, ok := o.(*metav1.PartialObjectMetadata); ok {
				c.gone(m.UID)
			}
			if resource.Resource == "customresourcedefinitions" {
				c.lookForKinds()
			}
		},
	})
	informers.Go(func() { informer.Run(w.stop) })
	return w
}

func (c *collector) lookForKinds() {
	select {
	case c.refresh <- struct{}{}:
	default:
	}
}

func (c *collector) changed(o object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, had := c.known[o.UID]
	if had {
		c.unlink(before)
	}
	c.known[o.UID] = o
	for _, ref := range o.OwnerReferences {
		if c.dependents[ref.UID] == nil {
			c.dependents[ref.UID] = map[types.UID]bool{}
		}
		c.dependents[ref.UID][o.UID] = true
		// An owner that waits for its dependents may have one less to wait for.
		if owner, ok := c.known[ref.UID]; ok && owner.DeletionTimestamp != nil {
			c.queue.Add(ref.UID)
		}
	}
	if len(o.OwnerReferences) > 0 || o.DeletionTimestamp != nil {
		c.queue.Add(o.UID)
	}
	if o.resource.Resource == "customresourcedefinitions" {
		c.lookForKinds()
	}
}

func (c *collector) gone(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.known[uid]
	if !ok {
		return
	}
	delete(c.known, uid)
	c.absent[uid] = true
	c.unlink(o)
	for dependent := range c.dependents[uid] {
		c.queue.Add(dependent)
	}
	for _, ref := range o.OwnerReferences {
		c.queue.Add(ref.UID)
	}
}

// unlink takes an object out of its owners' dependents. The caller holds the lock.
func (c *collector) unlink(o object) {
	for _, ref := range o.OwnerReferences {
		delete(c.dependents[ref.UID], o.UID)
		if len(c.dependents[ref.UID]) == 0 {
			delete(c.dependents, ref.UID)
		}
	}
}

// synced tells whether all that the API server holds was seen once.
func (c *collector) synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		if !w.synced() {
			return false
		}
	}
	return len(c.watches) > 0
}
