#!/bin/sh
# UCX opens the device. It hides one whose node it does not find, so it needs the preloaded library. ucx.sh NDRUN
set -eu
has() { "$ndrun" "$1" --no-label ucx_info -d 2>/dev/null | grep -q 'Device: softnd0:1$'; }
ndrun=$1
"$ndrun" --verbs --no-label ucx_info -d 2>/dev/null | grep -q 'Transport: rc_verbs$' || { echo 'no transport rc_verbs'; exit 1; }
has --verbs || { echo 'no device softnd0:1'; exit 1; }
! has --verbs=libs || { echo 'a device without its node'; exit 1; }
