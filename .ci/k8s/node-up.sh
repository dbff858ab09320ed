#!/usr/bin/env bash
# Adds a real node to the API server that up.sh started: containerd + runc + kubelet (as root, cgroup v1 or
# hybrid, no systemd needed). Pods run from images that were imported with `node-up.sh import ARCHIVE`.
#   node-up.sh                 starts (installs containerd, runc, CNI plugins from Debian; builds kubelet once)
#                                  K8S_TESTBED_BIN: a folder with ready kubelet (and containerd, shim, ctr) of any version
#   node-up.sh import FILE…    imports image archives (mkimage.sh makes one from a folder or busybox)
# Needs: K8S_TESTBED_CONTROLLERS=1 K8S_TESTBED_SCHEDULER=1 up.sh before. down.sh ends all of it.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${K8S_TESTBED_CACHE:-$HOME/.cache/k8s-testbed}; RUN=${K8S_TESTBED_RUN:-$CACHE/run}
BIN=${K8S_TESTBED_BIN:-$(ls -d "$CACHE"/bin/*/ | head -n 1)}; export PATH=$BIN:$PATH
NODE=$RUN/node STATE=/run/k8s-testbed ROOT=/var/lib/k8s-testbed SOCK=/run/k8s-testbed/containerd.sock
NODE_IP=10.99.0.1 POD_NET=10.244.0.0/24
say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
ctrk() { ctr --address "$SOCK" --namespace k8s.io "$@"; }
alive() { local pid; pid=$(cat "$RUN/$1.pid" 2>/dev/null) && [ "$(basename "$(readlink "/proc/$pid/exe")")" = "$1" ]; }
start() { local n=$1; shift; alive "$n" && return; setsid "$@" >"$RUN/$n.log" 2>&1 </dev/null & echo $! >"$RUN/$n.pid"; }

if [ "${1:-}" = import ]; then shift; for f in "$@"; do ctrk images import "$f" >&2; done; exit; fi

MISSING=(); for p in containerd:containerd runc:runc jq:jq busybox:busybox-static mount:mount ip:iproute2 iptables:iptables; do
  command -v "${p%%:*}" >/dev/null || MISSING+=("${p##*:}"); done
[ -x /usr/lib/cni/bridge ] || MISSING+=(containernetworking-plugins)
if [ ${#MISSING[@]} -gt 0 ]; then
  say "installing ${MISSING[*]}"; apt-get -qq update >&2
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${MISSING[@]}" >&2
fi
[ -n "${K8S_TESTBED_BIN:-}" ] || K8S_TESTBED_EXTRA=kubelet K8S_TESTBED_CONTROLLERS=1 K8S_TESTBED_SCHEDULER=1 "$HERE/up.sh" --build-only

mkdir -p "$NODE/cni" "$NODE/manifests" "$STATE" "$ROOT"
ip link show ktb-node >/dev/null 2>&1 || { ip link add ktb-node type bridge; ip addr add "$NODE_IP/32" dev ktb-node; ip link set ktb-node up; }
cat >"$NODE/cni/10-testbed.conflist" <<C
{"cniVersion":"0.4.0","name":"testbed","plugins":[
 {"type":"bridge","bridge":"ktb0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"$STATE/cni","ranges":[[{"subnet":"$POD_NET"}]],"routes":[{"dst":"10.0.0.0/8"}]}}]}
C
# containerd 1.6 / kubelet 1.20 (Debian bookworm's) or containerd 2 / kubelet 1.30 and later
if containerd --version | grep -q ' 2\.'; then
cat >"$NODE/containerd.toml" <<C
version = 3
root = "$ROOT/containerd"
state = "$STATE/containerd"
[grpc]
  address = "$SOCK"
[plugins."io.containerd.internal.v1.opt"]
  path = "$ROOT/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "$NODE/cni"
C
else
cat >"$NODE/containerd.toml" <<C
version = 2
root = "$ROOT/containerd"
state = "$STATE/containerd"
[grpc]
  address = "$SOCK"
[plugins."io.containerd.internal.v1.opt"]
  path = "$ROOT/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$NODE/cni"
C
fi
FLAGS=(); NEW=
case "$("$BIN/kubelet" --version)" in
*v1.20.*) FLAGS=(--container-runtime remote --container-runtime-endpoint "unix://$SOCK") ;;
*) NEW="containerRuntimeEndpoint: unix://$SOCK
failCgroupV1: false" ;;
esac
cat >"$NODE/kubelet.yaml" <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: 10248
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
resolvConf: ""
staticPodPath: $NODE/manifests
evictionHard: {memory.available: 200Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
$NEW
C
start containerd containerd --config "$NODE/containerd.toml"
for _ in $(seq 50); do ctrk version >/dev/null 2>&1 && break; sleep 0.2; done
if ! ctrk images ls -q | grep -qx localhost/pause:1; then
  "$HERE/mkimage.sh" localhost/pause:1 "$NODE/pause.tar" -- sleep 2147483647; ctrk images import "$NODE/pause.tar" >&2
fi
start kubelet "$BIN/kubelet" --config "$NODE/kubelet.yaml" --kubeconfig "$RUN/kubeconfig" --hostname-override testbed --node-ip "$NODE_IP" \
  "${FLAGS[@]}" --root-dir "$ROOT/kubelet" --cert-dir "$NODE/kubelet-pki" --v 1
T=$(cat "$RUN/pki/token"); S=$(sed -n 's/.*server: "\(.*\)", cert.*/\1/p' "$RUN/kubeconfig")
for _ in $(seq 300); do
  r=$(curl -fsS --cacert "$RUN/pki/ca.crt" -H "Authorization: Bearer $T" "$S/api/v1/nodes/testbed" 2>/dev/null |
    jq -r '.status.conditions[]? | select(.type=="Ready").status' 2>/dev/null || true)
  [ "$r" = True ] && { say "node testbed is Ready"; exit 0; }
  alive kubelet || { tail -n 30 "$RUN/kubelet.log" >&2; say "kubelet ended"; exit 1; }
  sleep 0.2
done
tail -n 30 "$RUN/kubelet.log" >&2; say "node not ready"; exit 1
