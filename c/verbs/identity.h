/* The device that verbs programs see. Two readers take values from here: the library, which answers queries, and CMake, which writes
 * them to files as those of sysfs. So each value is one literal on its line. Addresses are in identity.c. */
#ifndef SOFTND_VERBS_IDENTITY_H
#define SOFTND_VERBS_IDENTITY_H

#define DEVICE_NAME "softnd0" /* SOFTND_VERBS_DEVICE gives it another one */
#define DEVICE_NODE "uverbs_softnd0" /* below /dev/infiniband. A card's node is uverbs and a number */
#define DEVICE_SYSFS "/sys/class/infiniband/"
#define DEVICE_NODE_SYSFS "/sys/class/infiniband_verbs/" DEVICE_NODE

#define NODE_TYPE "1: CA"
#define NODE_GUID_PREFIX 0x02736e6400000000 /* locally administered: its second bit is set. 4 bytes of the fabric follow */
#define NODE_DESCRIPTION "softnd"
#define BOARD_ID "softnd"
#define FIRMWARE_VERSION "0.1.0"

/* UCX and perftest treat the vendors that they know in their own way. This one is none of them. */
#define VENDOR_ID 0xffffff
#define VENDOR_PART_ID 0
#define HARDWARE_VERSION 0

/* The port. The first GID is fe80::/64 and the GUID. */
#define PORT_GIDS 4
#define PORT_GID_PREFIX 0xfe80000000000000
#define MAX_LID 0xbfff
#define PORT_SM_LID 1
#define COUNTERS "ports/1/counters/" /* below the device's directory */
#define NET_DEVICE "lo"
#define NET_INDEX 1
#define PORT_PKEY 0xffff
#define PORT_PKEY_TEXT "0xffff"
#define PORT_STATE_TEXT "4: ACTIVE"
#define PORT_PHYS_STATE_TEXT "5: LinkUp"
#define PORT_RATE_TEXT "200 Gb/sec (4X HDR)"
#define PORT_WIDTH 2 /* 4X */
#define PORT_SPEED 64 /* HDR */

#endif
