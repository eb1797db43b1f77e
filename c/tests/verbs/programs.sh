#!/bin/sh
# The distribution's programs show the device. programs.sh OURS
set -eu
export LD_LIBRARY_PATH="$1"
has() { echo "$output" | grep -qE "$1" || { echo "no $1 in: $output"; exit 1; }; }
output=$(ibv_devices 2>&1)
has '^[[:space:]]*softnd0[[:space:]]+[0-9a-f]{16}$'
output=$(SOFTND_VERBS_DEVICE=mlx5_0 ibv_devices 2>&1)
has '^[[:space:]]*mlx5_0[[:space:]]+[0-9a-f]{16}$'
output=$(ibv_devinfo -v 2>&1)
for line in 'hca_id:.*softnd0' 'atomic_cap:.*ATOMIC_HCA' 'phys_port_cnt:.*1' 'state:.*PORT_ACTIVE' 'max_mtu:.*4096' 'phys_state:.*LINK_UP' \
	'board_id:.*softnd' 'link_layer:.*InfiniBand' 'port_lid:.*[1-9]' 'GID\[  0\]:.*fe80:0000:0000:0000:0273:6e64:'; do
	has "$line"
done
output=$(SOFTND_VERBS_LINK=roce ibv_devinfo -v 2>&1)
for line in 'link_layer:.*Ethernet' 'port_lid:.*0$' 'GID\[  0\]:.*fe80:.*RoCE v1' 'GID\[  1\]:.*fe80:.*RoCE v2' 'GID\[  2\]:.*ffff:7f.*RoCE v1' 'GID\[  3\]:.*::ffff:127\..*RoCE v2'; do
	has "$line"
done
# A setting that makes no sense is refused, and explained without SOFTND_DEBUG.
output=$(SOFTND_VERBS_DEVICE=a/b ibv_devices 2>&1) && exit 1
has 'Invalid argument'
has '^softnd: list devices: SOFTND_VERBS_DEVICE: "a/b": want 1 to 63 bytes'
output=$(SOFTND_VERBS_LINK=ethernet ibv_devices 2>&1) && exit 1
has '^softnd: list devices: SOFTND_VERBS_LINK: "ethernet": want infiniband or roce$'
for setting in ADOPT=yes CHECK_PAGES=yes SPIN=2s; do
	output=$(env SOFTND_VERBS_$setting ibv_rc_pingpong 2>&1) && exit 1
	has "^softnd: join fabric: SOFTND_VERBS_${setting%=*}: .*\"${setting#*=}\": want "
done
# So is all that is not built, by a status that the program reports. No program ends by a signal.
for program in ibv_ud_pingpong ibv_uc_pingpong udaddy; do
	command -v $program >/dev/null || { echo "skipped: $program is not installed" && continue; }
	status=0
	output=$(timeout 300 $program 2>&1 </dev/null) || status=$?
	test $status -gt 0 && { test $status -lt 124 || test $status = 255; } || { echo "$program: $status: $output"; exit 1; }
done
