package localkube

import (
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// eventSink writes events to the API server.
func eventSink(config *rest.Config) (record.EventSink, error) {
	api, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &typedcorev1.EventSinkImpl{Interface: api.Events("")}, nil
}
