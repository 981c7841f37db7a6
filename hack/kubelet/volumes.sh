#!/usr/bin/env bash
# volumes.sh: a storage class and, for each node, $VOLUMES `local` volumes in folders that outlive pods and nodes.
#
# local and not hostPath: the kubelet applies a pod's fsGroup to the first and ignores it on the second. The folders
# belong to root and to nobody else, so that a pod without fsGroup can't write to one. There is no provisioner: a
# claim waits for its pod, and the scheduler takes a free volume of the node that it picks.
set -euo pipefail
. "$(dirname "$0")/settings.sh"

{
  cat <<'Y'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
Y
  for node in "${NODES[@]}"; do
    for i in $(seq -w 1 "$VOLUMES"); do
      folder=$STATE/volumes/$node/$i
      mkdir -p "$folder"
      chmod 0750 "$folder"
      cat <<Y
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $node-$i}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {path: $folder}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$node]}]
Y
    done
  done
} | kubectl apply --server-side -f - >/dev/null
