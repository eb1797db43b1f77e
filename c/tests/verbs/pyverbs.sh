#!/bin/sh
# pyverbs' own tests: those that need what is built succeed, and the others are skipped for a reason that is listed here. pyverbs.sh OURS TESTS, a folder
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/tests"
cp "$2"/* "$work/tests"
gunzip -f "$work"/tests/*.gz
cd "$work"
export LD_LIBRARY_PATH="$1" PYTHONDONTWRITEBYTECODE=1
# run NAME runs all tests over a link, and puts a line for each into the file of that name: module.test result. Those of librdmacm look for the device
# in sysfs.
run() {
	SOFTND_VERBS_LINK=$1 LD_PRELOAD="$LD_LIBRARY_PATH/libsoftnd-sys.so" /usr/bin/python3 tests/run_tests.py -v >log 2>&1 || :
	awk '/^test[a-z0-9_]* \(tests\./ { split($2, part, "."); test = part[2] "." $1 }
		match($0, /(^| \.\.\. )(ok|ERROR|FAIL|skipped .*)$/) { sub(/^.* \.\.\. /, ""); print test, $0 }' log | sort >"$1"
}
cat >expected <<'LIST'
^test_(mlx5|efa|cuda)[a-z0-9_]*\..* skipped
# Datagrams, and unreliable connections. The tests of bad requests use datagrams.
skipped 'Create (UC|UD) QP with
skipped 'Create QP type 4 is not supported'
^test_qpex\.test_(qp_ex_ud_[a-z_]*|full_rq_bad_flow|post_(receive|send)_qp_state_bad_flow|rq_with_larger_sgl_bad_flow) skipped
^test_rdmacm\.test_rdmacm_async_udp_traffic ERROR$
skipped 'Multicast is not supported on this device'
# Raw packets need Ethernet: over RoCE, the queue pair is refused.
skipped '(To Create RAW QP must|Must) be (done|run) by root on Ethernet link layer'
skipped 'Create (QP type 8|Raw Packet QP with(out)?( extended)? attrs) is not supported'
# Extensions that the design leaves out.
skipped 'Create XRCD is not supported'
skipped 'Device memory is not supported'
skipped 'Allocating dmabuf is not supported by
skipped 'ODP is not supported - No ODP caps'
skipped 'There are no huge pages of size 2M allocated'
skipped 'Parent Domain is not supported on this device'
skipped 'Importing a device is not supported'
^test_tag_matching\..* skipped 'Extended CQ is not supported'
^test_qpex\.test_qp_ex_rc_atomic_write skipped
# Tests of one link.
^test_addr\.test_create_ah_roce skipped 'Link layer of port=1 is InfiniBand , skip RoCE test'
^test_device\.test_query_gid_ex_bad_flow skipped 'All gid indices populated, cannot check bad flow'
LIST
sed -i '/^#/d' expected
for link in infiniband roce; do
	run $link
	test "$(wc -l <$link)" -ge 273 || { cat log && exit 1; }
	grep -v ' ok$' $link | grep -vE -f expected && exit 1
	echo "$link: $(grep -c ' ok$' $link) succeed, $(grep -c ' skipped ' $link) are skipped"
done
# Each test that one link lacks has the other.
count=$(cat infiniband roce | sed -n 's/ ok$//p' | sort -u | wc -l)
test "$count" -ge 69 || { cat infiniband && exit 1; }
