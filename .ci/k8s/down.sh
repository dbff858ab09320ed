#!/usr/bin/env bash
# Ends what up.sh and node-up.sh started: each process by its pid, and only when that pid still is that program.
#   down.sh [--wipe]     --wipe: etcd's data, the keys and the kubeconfig go too (the built binaries stay)
set -uo pipefail
CACHE=${K8S_TESTBED_CACHE:-$HOME/.cache/k8s-testbed}
RUN=${K8S_TESTBED_RUN:-$CACHE/run}
SOCK=/run/k8s-testbed/containerd.sock
end() { # name
  local f=$RUN/$1.pid pid
  [ -s "$f" ] || return 0
  pid=$(cat "$f")
  ours() { case "$(readlink "/proc/$pid/exe" 2>/dev/null)" in */"$1" | */"$1 (deleted)") return 0 ;; *) return 1 ;; esac; }
  if ours "$1"; then
    kill "$pid" 2>/dev/null
    for _ in $(seq 50); do ours "$1" || break; sleep 0.2; done
    if ours "$1"; then kill -9 "$pid" 2>/dev/null; fi
    echo "ended $1 ($pid)" >&2
  fi
  rm -f "$f"
}
node=0; [ -s "$RUN/containerd.pid" ] && node=1
end kubelet
if [ $node = 1 ]; then
  c() { timeout 20 ctr --address "$SOCK" --namespace k8s.io "$@" 2>/dev/null; }
  for t in $(c tasks ls -q); do c tasks kill --signal KILL "$t"; done
  for t in $(c tasks ls -q); do c tasks rm --force "$t" >/dev/null; done
  for t in $(c containers ls -q); do c containers rm "$t"; done
  end containerd
  # Shims (and through them their containers) outlive containerd; containerd 2 keeps a pod's shim even with no task left.
  for d in /proc/[0-9]*; do
    case "$(tr '\0' ' ' <"$d/cmdline" 2>/dev/null)" in
    */containerd-shim-runc-v2\ *"-address $SOCK "*) kill -9 "${d#/proc/}" 2>/dev/null; echo "ended containerd-shim (${d#/proc/})" >&2 ;;
    esac
  done
  for ns in /var/run/netns/cni-*; do [ -e "$ns" ] && ip netns del "$(basename "$ns")" 2>/dev/null; done
  awk '$2 ~ "^(/run|/var/lib)/k8s-testbed/" {print $2}' /proc/mounts | sort -r | while read -r m; do umount "$m" 2>/dev/null; done
  ip link del ktb0 2>/dev/null; ip link del ktb-node 2>/dev/null
  rm -rf /run/k8s-testbed/cni
  # The pods' empty cgroups; one that still holds a process stays.
  for d in /sys/fs/cgroup/*/kubepods; do
    [ ! -d "$d" ] || find "$d" -depth -type d -exec rmdir {} \; 2>/dev/null
  done
fi
for name in kube-scheduler kube-controller-manager kube-apiserver etcd; do end "$name"; done
if [ "${1:-}" = --wipe ]; then rm -rf "$RUN"; [ $node = 1 ] && rm -rf /var/lib/k8s-testbed /run/k8s-testbed; fi
exit 0
