#!/usr/bin/env bash
# Starts a real etcd + kube-apiserver on loopback and prints the path of a kubeconfig.
#
# Everything comes from Debian bookworm: the etcd and Go toolchain .debs are unpacked into the cache
# folder (nothing is installed on the system, no service is started), kube-apiserver is built once from
# the bookworm source package "kubernetes" (v1.20.2, vendored modules). A second run only starts.
#
#   up.sh [--build-only]        stdout: one line, the kubeconfig path; all else goes to stderr
#   down.sh                     ends what this started, by pid
#
# Settings (environment):
#   K8S_TESTBED_CACHE       cache folder            (~/.cache/k8s-testbed)
#   K8S_TESTBED_RUN         run folder              ($K8S_TESTBED_CACHE/run)
#   K8S_TESTBED_PORT        kube-apiserver port     (16443); etcd takes the next two ports
#   K8S_TESTBED_CONTROLLERS 1: kube-controller-manager too (garbage collection by ownerReferences,
#                           namespace deletion, service account tokens); it is built too       (0)
#   K8S_TESTBED_PLAYED      1: nobody plays nodes but the tests: the controller manager leaves nodes and their pods alone (0)
#   K8S_TESTBED_SCHEDULER   1: kube-scheduler too; it is built too                             (0)
#   K8S_TESTBED_EXTRA       further programs to build, not started here: kubectl kubelet kubeadm …
#   K8S_TESTBED_BIN         a folder with ready binaries (kube-apiserver …, perhaps etcd) of any version: nothing is
#                           built then
#   K8S_TESTBED_COMPACTION  etcd compaction interval; short values make 410 Gone easy to meet  (5m)
#   K8S_TESTBED_KEEP_SRC    1: keep the unpacked source and the Go build cache (about 3 GB)    (0)
set -euo pipefail

CACHE=${K8S_TESTBED_CACHE:-$HOME/.cache/k8s-testbed}
RUN=${K8S_TESTBED_RUN:-$CACHE/run}
PORT=${K8S_TESTBED_PORT:-16443}
CONTROLLERS=${K8S_TESTBED_CONTROLLERS:-0}
SCHEDULER=${K8S_TESTBED_SCHEDULER:-0}
PLAYED=${K8S_TESTBED_PLAYED:-0}
COMPACTION=${K8S_TESTBED_COMPACTION:-5m}
ETCD_PORT=$((PORT + 1)); ETCD_PEER_PORT=$((PORT + 2))

SUITE=bookworm
SRC_VERSION='1.20.5+really1.20.2-1.1+deb12u1'
ORIG_SHA256=b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc
GO_SERIES=1.19
ID="debian-$SUITE-kubernetes-1.20.2-go$GO_SERIES"
BIN=${K8S_TESTBED_BIN:-$CACHE/bin/$ID}

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2; }
die() { say "error: $*"; exit 1; }
# The tools the script itself needs; each is on Debian's base image or in one of these packages.
need() { command -v "$1" >/dev/null 2>&1 || MISSING+=("$2"); }

# ---------------------------------------------------------------- build (once)

# A private apt state: this suite's packages and sources, from the mirror that the system itself uses.
# The system's lists and sources are not touched.
apt_setup() {
  local mirror apt=$CACHE/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/etc"
  mirror=${K8S_TESTBED_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
    grep -v -e security | head -n 1)}
  [ -n "$mirror" ] || mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | grep '/debian/\?$' | head -n 1)
  [ -n "$mirror" ] || mirror=$(awk '$1=="deb" {for (i=2;i<=NF;i++) if ($i ~ /\/debian\/?$/) {print $i; exit}}' /etc/apt/sources.list 2>/dev/null || true)
  [ -n "$mirror" ] || die "no Debian mirror in the system's apt sources (set K8S_TESTBED_MIRROR)"
  local key=/usr/share/keyrings/debian-archive-keyring.gpg
  { echo "deb [signed-by=$key] $mirror $SUITE main"; echo "deb-src [signed-by=$key] $mirror $SUITE main"; } >"$apt/etc/sources.list"
  cat >"$apt/etc/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/etc/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Get::List-Cleanup "0";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
CONF
  export APT_CONFIG=$apt/etc/apt.conf
  apt-get -qq update >&2
}

unpack_debs() { # folder package…
  local into=$1; shift
  ( mkdir -p "$CACHE/debs" && cd "$CACHE/debs" && rm -f -- "${@/%/_*.deb}" && apt-get -qq download "$@" >&2 )
  mkdir -p "$into"
  local p; for p in "$@"; do dpkg-deb -x "$CACHE"/debs/"$p"_*.deb "$into"; done
}

fetch_etcd() {
  [ -x "$CACHE/etcd/usr/bin/etcd" ] && return
  apt_setup
  say "etcd from $SUITE"
  rm -rf "$CACHE/etcd.new"; unpack_debs "$CACHE/etcd.new" etcd-server
  rm -rf "$CACHE/etcd"; mv "$CACHE/etcd.new" "$CACHE/etcd"
}

build() { # kube-apiserver …
  local want=() b; mkdir -p "$BIN"
  for b in "$@"; do [ -x "$BIN/$b" ] || want+=("$b"); done
  [ ${#want[@]} -gt 0 ] || return 0
  local MISSING=(); need dpkg-source dpkg-dev; need patch patch; need xz xz-utils
  if [ ${#MISSING[@]} -gt 0 ]; then
    say "installing ${MISSING[*]}"
    env -u APT_CONFIG apt-get -qq update >&2
    env -u APT_CONFIG DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${MISSING[@]}" >&2
  fi
  apt_setup
  local go=$CACHE/go src=$CACHE/src/kubernetes
  if [ ! -x "$go/usr/lib/go-$GO_SERIES/bin/go" ]; then
    say "Go $GO_SERIES from $SUITE"
    rm -rf "$go"; unpack_debs "$go" "golang-$GO_SERIES-go" "golang-$GO_SERIES-src"
  fi
  if [ ! -e "$src/.unpacked" ]; then
    say "source package kubernetes $SRC_VERSION"
    rm -rf "$CACHE/src"; mkdir -p "$CACHE/src"
    ( cd "$CACHE/src" && apt-get -qq source --download-only "kubernetes=$SRC_VERSION" >&2
      echo "$ORIG_SHA256  $(echo kubernetes_*.orig.tar.gz)" | sha256sum --check --quiet >&2
      dpkg-source --no-check -x kubernetes_*.dsc kubernetes >&2 )
    # v1.20.2 vendors reflect2 1.0.1, which crashes JSON decoding of maps when built with Go 1.18 or later
    # (every second POST would answer with a reset stream); Debian's own reflect2 1.0.2 is the fix.
    unpack_debs "$CACHE/src/reflect2" golang-github-modern-go-reflect2-dev
    rm -rf "$src/vendor/github.com/modern-go/reflect2"
    cp -r "$CACHE/src/reflect2/usr/share/gocode/src/github.com/modern-go/reflect2" "$src/vendor/github.com/modern-go/reflect2"
    mkdir -p "$src/.go/src/k8s.io"; ln -sfn ../../.. "$src/.go/src/k8s.io/kubernetes"
    touch "$src/.unpacked"
  fi
  # GOPATH mode, as the Debian package itself builds; offline, no C compiler needed.
  export GOPATH=$src/.go GO111MODULE=off GOPROXY=off GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 GOCACHE=$CACHE/gocache
  unset GOROOT
  local path=$go/usr/lib/go-$GO_SERIES/bin k=$src/.go/src/k8s.io/kubernetes
  cd "$k"
  # The one generated file that the source package leaves out (Debian builds kubectl only).
  local gen=pkg/generated/openapi/zz_generated.openapi.go
  if [ ! -s "$gen" ]; then
    say "generating $gen"
    "$path/go" build -o "$CACHE/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    local dirs
    dirs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' cmd pkg plugin vendor/k8s.io/*/ 2>/dev/null |
      grep -v -e '^vendor/k8s.io/code-generator/' -e '^vendor/k8s.io/sample-apiserver/' -e '^vendor/k8s.io/kube-openapi/' -e '^vendor/k8s.io/gengo/' |
      xargs -n1 dirname | LC_ALL=C sort -u | sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
    PATH=$path:$PATH "$CACHE/openapi-gen" --logtostderr -i "$dirs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
      -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$CACHE/openapi-violations.txt" >&2
    [ -s "$gen" ] || die "openapi-gen wrote no $gen"
    rm -f "$CACHE/openapi-gen"
  fi
  local v=k8s.io/component-base/version cv=k8s.io/client-go/pkg/version x="" p
  for p in k8s.io/kubernetes/vendor/$v k8s.io/kubernetes/vendor/$cv; do
    x+=" -X $p.gitVersion=v1.20.2 -X $p.gitMajor=1 -X $p.gitMinor=20 -X $p.gitTreeState=archive -X $p.buildDate=1970-01-01T00:00:00Z"
  done
  for b in "${want[@]}"; do
    say "building $b"
    [ -z "${K8S_TESTBED_GOFLAGS:-}" ] || say "go build $K8S_TESTBED_GOFLAGS"
    "$path/go" build ${K8S_TESTBED_GOFLAGS:-} -tags 'providerless dockerless' -ldflags "-s -w$x" -o "$BIN/.$b.new" "./cmd/$b" >&2
    mv "$BIN/.$b.new" "$BIN/$b"
  done
  cd "$CACHE"
  if [ "${K8S_TESTBED_KEEP_SRC:-0}" != 1 ]; then chmod -R u+w "$CACHE/src" && rm -rf "$CACHE/src" "$CACHE/gocache" "$CACHE/go" "$CACHE/debs" "$CACHE/apt"; fi
}

mkdir -p "$CACHE"
WANT=(kube-apiserver ${K8S_TESTBED_EXTRA:-})
[ "$CONTROLLERS" = 1 ] && WANT+=(kube-controller-manager)
[ "$SCHEDULER" = 1 ] && WANT+=(kube-scheduler)
ETCD=$CACHE/etcd/usr/bin/etcd; [ ! -x "$BIN/etcd" ] || ETCD=$BIN/etcd
(
  flock 9
  [ -x "$ETCD" ] || fetch_etcd
  [ -n "${K8S_TESTBED_BIN:-}" ] || build "${WANT[@]}"
) 9>"$CACHE/build.lock"
[ "${1:-}" = --build-only ] && { say "built: $BIN"; exit 0; }

# ---------------------------------------------------------------- start

# Flags that v1.20 needs and later versions no longer know.
OLD_API=(); OLD=(); case "$("$BIN/kube-apiserver" --version)" in *v1.20.*) OLD_API=(--insecure-port 0); OLD=(--port 0) ;; esac
alive() { # pidfile binary
  local pid; pid=$(cat "$1" 2>/dev/null) || return 1
  [ -n "$pid" ] && [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$2")" ]
}
start() { # name binary args…
  local name=$1 bin=$2; shift 2
  alive "$RUN/$name.pid" "$bin" && return
  # 9>&-: no lock is inherited; setsid: outlives the calling shell, ended by down.sh
  setsid "$bin" "$@" >"$RUN/$name.log" 2>&1 </dev/null &
  echo $! >"$RUN/$name.pid"
}
wait_for() { # seconds name command…
  local end=$((SECONDS + $1)) name=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { tail -n 20 "$RUN/$name.log" >&2; die "$name is not ready"; }
    kill -0 "$(cat "$RUN/$name.pid")" 2>/dev/null || { tail -n 20 "$RUN/$name.log" >&2; die "$name ended"; }
    sleep 0.2
  done
}

mkdir -p "$RUN/pki"; chmod 700 "$RUN"
cd "$RUN"
if [ ! -s pki/token ]; then
  command -v openssl >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends openssl; } >&2
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=k8s-testbed-ca \
    -keyout pki/ca.key -out pki/ca.crt 2>/dev/null
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=kube-apiserver -keyout pki/apiserver.key -out pki/apiserver.csr 2>/dev/null
  openssl x509 -req -in pki/apiserver.csr -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -days 3650 -out pki/apiserver.crt -extfile <(
    echo 'subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc'
    echo 'extendedKeyUsage=serverAuth') 2>/dev/null
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=system:masters/CN=apiserver-kubelet-client \
    -keyout pki/kubelet-client.key -out pki/kubelet-client.csr 2>/dev/null
  openssl x509 -req -in pki/kubelet-client.csr -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -days 3650 -out pki/kubelet-client.crt \
    -extfile <(echo 'extendedKeyUsage=clientAuth') 2>/dev/null
  openssl genrsa -out pki/sa.key 2048 2>/dev/null
  (umask 077; openssl rand -hex 24 >pki/token; echo "$(cat pki/token),admin,admin,system:masters" >pki/tokens.csv)
fi
(umask 077; cat >kubeconfig <<KC
apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster: {server: "https://127.0.0.1:$PORT", certificate-authority-data: $(base64 -w0 <pki/ca.crt)}
users:
- name: admin
  user: {token: $(cat pki/token)}
contexts:
- name: testbed
  context: {cluster: testbed, user: admin, namespace: default}
current-context: testbed
KC
)

start etcd "$ETCD" --name testbed --data-dir "$RUN/etcd-data" --log-level warn \
  --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
  --initial-cluster "testbed=http://127.0.0.1:$ETCD_PEER_PORT"
wait_for 30 etcd curl -fsS "http://127.0.0.1:$ETCD_PORT/health"

# Without the controller manager nobody makes the default service accounts, so that admission is off then.
ADMISSION=(); [ "$CONTROLLERS" = 1 ] || ADMISSION=(--disable-admission-plugins=ServiceAccount)
start kube-apiserver "$BIN/kube-apiserver" --etcd-servers "http://127.0.0.1:$ETCD_PORT" --etcd-compaction-interval "$COMPACTION" \
  --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port "$PORT" "${OLD_API[@]}" --cert-dir "$RUN/pki" \
  --tls-cert-file pki/apiserver.crt --tls-private-key-file pki/apiserver.key --client-ca-file pki/ca.crt \
  --token-auth-file pki/tokens.csv --authorization-mode Node,RBAC --service-cluster-ip-range 10.96.0.0/16 \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file pki/sa.key --service-account-signing-key-file pki/sa.key \
  --kubelet-client-certificate pki/kubelet-client.crt --kubelet-client-key pki/kubelet-client.key --kubelet-preferred-address-types InternalIP \
  --allow-privileged=true --endpoint-reconciler-type none --profiling=false "${ADMISSION[@]}"
wait_for 60 kube-apiserver curl -fsS --cacert pki/ca.crt -H "Authorization: Bearer $(cat pki/token)" "https://127.0.0.1:$PORT/readyz"

if [ "$CONTROLLERS" = 1 ]; then
  # Played nodes send no heartbeats and have no kubelet: these two would end their pods.
  LEFT_OUT=(); [ "$PLAYED" != 1 ] || LEFT_OUT=(--controllers '*,-nodelifecycle,-podgc')
  start kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig "$RUN/kubeconfig" --leader-elect=false \
    --use-service-account-credentials=true --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt \
    --cluster-signing-cert-file pki/ca.crt --cluster-signing-key-file pki/ca.key \
    --bind-address 127.0.0.1 --secure-port $((PORT + 3)) "${OLD[@]}" "${LEFT_OUT[@]}" --cert-dir "$RUN/pki/kcm"
  wait_for 60 kube-controller-manager curl -fsS --cacert pki/ca.crt -H "Authorization: Bearer $(cat pki/token)" \
    "https://127.0.0.1:$PORT/api/v1/namespaces/default/serviceaccounts/default"
fi
if [ "$SCHEDULER" = 1 ]; then
  start kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$RUN/kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port $((PORT + 4)) "${OLD[@]}" --cert-dir "$RUN/pki/scheduler"
fi
say "ready: kube-apiserver https://127.0.0.1:$PORT, etcd http://127.0.0.1:$ETCD_PORT"
echo "$RUN/kubeconfig"
