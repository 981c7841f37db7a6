package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// object is a Kubernetes object as YAML has it.
type object = map[string]any

// valueSets are the ways to set the chart that are rendered and checked, by name.
var valueSets = map[string][]string{
	"defaults":   nil,
	"namespaced": {"--set", "watchNamespaces={team-a,team-b}"},
	"without":    {"--set", "crds.enabled=false,rbac.create=false,serviceAccount.create=false,serviceAccount.name=mine,metrics.port=0"},
	"much": {"--set", "image.repository=registry.example/hw,image.digest=sha256:" + strings.Repeat("0", 64),
		"--set", "imagePullSecrets[0].name=pull,nodeImage=registry.example/node:1,replicaCount=2,logging.level=debug",
		"--set", "extraArgs={--leader-election-namespace=elsewhere},metrics.service.enabled=true,commonLabels.team=a",
		"--set", "commonAnnotations.note=b,podLabels.c=d,podAnnotations.e=f,serviceAccount.annotations.g=h",
		"--set", "nodeSelector.disk=ssd,priorityClassName=system-cluster-critical,tolerations[0].operator=Exists",
		"--set-json", `topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app.kubernetes.io/component":"operator"}}}]`,
		"--set-json", `affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}}`},
}

// refusals are values that the schema or the templates must refuse, and what the message must name.
var refusals = []struct{ args, names string }{
	{"replicaCounts=2", "replicaCounts"},
	{"image.repo=x", "repo"},
	{"image.pullPolicy=Sometimes", "pullPolicy"},
	{"image.digest=latest", "digest"},
	{"replicaCount=-1", "replicaCount"},
	{"replicaCount=two", "replicaCount"},
	{"crds.keep=perhaps", "keep"},
	{"crds.create=true", "create"},
	{"watchNamespaces=team-a", "watchNamespaces"},
	{"watchNamespaces={Team}", "watchNamespaces"},
	{"watchNamespaces={a,a}", "watchNamespaces"},
	{"logging.level=loud", "level"},
	{"metrics.port=70000", "port"},
	{"metrics.port=8081", "port"},
	{"metrics.port=0,metrics.service.enabled=true", "metrics.service.enabled"},
	{"resources.limit.memory=1Gi", "limit"},
	{"affinity.podAfinity.x=1", "podAfinity"},
	{"extraArgs={debug}", "extraArgs"},
	{"serviceAccount.create=false", "serviceAccount.name"},
}

func (e *env) staticSteps() []cluster.Step {
	return []cluster.Step{
		{Name: "helm lint --strict, each way to set the chart", Limit: 2 * time.Minute, Do: e.lint},
		{Name: "values that are wrong are refused by name", Limit: 2 * time.Minute, Do: e.refuses},
		{Name: "every value is in the README and in the schema", Limit: time.Minute, Do: e.documented},
		{Name: "the chart installs what config/ does", Limit: time.Minute, Do: e.sameAsConfig},
		{Name: "namespaced, it asks for no right in the whole cluster", Limit: time.Minute, Do: e.namespacedRights},
		{Name: "without crds.keep the CRDs go with the release, and the notes warn", Limit: time.Minute, Do: e.keepIsOptional},
	}
}

func (e *env) lint(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(valueSets)) {
		if out, err := e.runHelm(ctx, append([]string{"lint", "--strict", e.chart}, valueSets[name]...)...); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
	}
	return nil
}

func (e *env) refuses(ctx context.Context) error {
	for _, refusal := range refusals {
		_, err := e.runHelm(ctx, "template", "highwater", e.chart, "--set", refusal.args)
		if err == nil {
			return fmt.Errorf("--set %s was accepted", refusal.args)
		}
		if !strings.Contains(err.Error(), refusal.names) {
			return fmt.Errorf("--set %s: the message does not name %s: %w", refusal.args, refusal.names, err)
		}
	}
	cluster.Say("%d wrong values refused", len(refusals))
	return nil
}

// render returns the objects that the chart makes, by kind/namespace/name.
func (e *env) render(ctx context.Context, args ...string) (map[string]object, error) {
	out, err := e.runHelm(ctx, append([]string{"template", "highwater", e.chart, "--namespace", "highwater-system"}, args...)...)
	if err != nil {
		return nil, err
	}
	return parse(out)
}

var separator = regexp.MustCompile(`(?m)^---\s*$`)

func parse(text string) (map[string]object, error) {
	objects := map[string]object{}
	for _, document := range separator.Split(text, -1) {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		if len(o) == 0 {
			continue
		}
		key := keyOf(o)
		if _, twice := objects[key]; twice {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		objects[key] = o
	}
	return objects, nil
}

func keyOf(o object) string {
	metadata, _ := o["metadata"].(object)
	namespace, _ := metadata["namespace"].(string)
	return fmt.Sprintf("%v/%s/%v", o["kind"], namespace, metadata["name"])
}

// config reads what kustomize installs, by the same keys.
func (e *env) config() (map[string]object, error) {
	all := map[string]object{}
	for _, pattern := range []string{"crd/bases/*.yaml", "rbac/*.yaml", "manager/manager.yaml"} {
		paths, err := filepath.Glob(filepath.Join(e.root, "config", pattern))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("nothing at config/%s", pattern)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			objects, err := parse(string(text))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			maps.Copy(all, objects)
		}
	}
	delete(all, "Kustomization//<nil>")
	return all, nil
}

// sameAsConfig compares object by object. Labels and annotations are each side's own, save that CRDs are kept.
func (e *env) sameAsConfig(ctx context.Context) error {
	chart, err := e.render(ctx)
	if err != nil {
		return err
	}
	config, err := e.config()
	if err != nil {
		return err
	}
	if a, b := slices.Sorted(maps.Keys(chart)), slices.Sorted(maps.Keys(config)); !slices.Equal(a, b) {
		return fmt.Errorf("the chart makes %v, config %v", a, b)
	}
	for key, want := range config {
		have := chart[key]
		if strings.HasPrefix(key, "CustomResourceDefinition/") {
			annotations, _ := have["metadata"].(object)["annotations"].(object)
			if annotations["helm.sh/resource-policy"] != "keep" {
				return fmt.Errorf("%s is not kept: annotations %v", key, annotations)
			}
		}
		for _, o := range []object{have, want} {
			delete(o, "metadata")
			if spec, ok := o["spec"].(object); ok && strings.HasPrefix(key, "Deployment/") {
				delete(spec, "selector")
				delete(spec["template"].(object), "metadata")
			}
		}
		if !reflect.DeepEqual(have, want) {
			return fmt.Errorf("%s differs.\nchart:  %v\nconfig: %v", key, have, want)
		}
	}
	cluster.Say("%d objects are alike", len(config))
	return nil
}

func (e *env) namespacedRights(ctx context.Context) error {
	all, err := e.render(ctx)
	if err != nil {
		return err
	}
	objects, err := e.render(ctx, valueSets["namespaced"]...)
	if err != nil {
		return err
	}
	for key := range objects {
		if strings.HasPrefix(key, "ClusterRole") {
			return fmt.Errorf("%s is there", key)
		}
	}
	for _, namespace := range []string{"team-a", "team-b"} {
		role, bound := objects["Role/"+namespace+"/highwater-operator"], objects["RoleBinding/"+namespace+"/highwater-operator"]
		if !reflect.DeepEqual(role["rules"], all["ClusterRole//highwater-operator"]["rules"]) || bound == nil {
			return fmt.Errorf("in %s: role %v, binding %v", namespace, role, bound)
		}
	}
	return nil
}

func (e *env) keepIsOptional(ctx context.Context) error {
	objects, err := e.render(ctx, "--set", "crds.keep=false")
	if err != nil {
		return err
	}
	for key, o := range objects {
		annotations, _ := o["metadata"].(object)["annotations"].(object)
		if _, kept := annotations["helm.sh/resource-policy"]; kept {
			return fmt.Errorf("%s is kept", key)
		}
	}
	out, err := e.runHelm(ctx, "install", "highwater", e.chart, "--dry-run=client", "--set", "crds.keep=false")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "WARNING: crds.keep=false") {
		return errors.New("the notes don't warn")
	}
	return nil
}

// documented holds values.yaml, values.schema.json and README.md together.
func (e *env) documented(context.Context) error {
	var values, schema object
	for name, into := range map[string]*object{"values.yaml": &values, "values.schema.json": &schema} {
		text, err := os.ReadFile(filepath.Join(e.chart, name))
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	readme, err := os.ReadFile(filepath.Join(e.chart, "README.md"))
	if err != nil {
		return err
	}
	return documentedBelow("", values, schema, string(readme))
}

// documentedBelow checks the keys of one level. What Kubernetes defines is one value to the chart.
func documentedBelow(path string, values, schema object, readme string) error {
	properties, hasParts := schema["properties"].(object)
	if !hasParts || path == "resources" || path == "affinity" {
		if !strings.Contains(readme, "`"+path+"`") {
			return fmt.Errorf("%s is not in README.md", path)
		}
		return nil
	}
	for key := range properties {
		if _, has := values[key]; !has && path+key != "global" { // global is Helm's own
			return fmt.Errorf("%s.%s is in the schema and not in values.yaml", path, key)
		}
	}
	for key, value := range values {
		property, known := properties[key].(object)
		if !known {
			return fmt.Errorf("%s.%s is in values.yaml and not in the schema", path, key)
		}
		inner, _ := value.(object)
		if err := documentedBelow(strings.TrimPrefix(path+"."+key, "."), inner, property, readme); err != nil {
			return err
		}
	}
	return nil
}
