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
	'link_layer:.*InfiniBand' 'port_lid:.*1' 'GID\[  0\]:.*fe80:0000:0000:0000:'; do
	has "$line"
done
# A name that is none is refused. So is a queue, which is not built, by a status, and without an end of the program by a signal.
output=$(SOFTND_VERBS_DEVICE=a/b ibv_devices 2>&1) && exit 1
has 'Invalid argument'
output=$(ibv_rc_pingpong 2>&1) && exit 1
test $? = 1
