/* The device that verbs programs see. Two readers take values from here: the library, which answers queries, and CMake, which writes
 * them to files as those of sysfs. So each value is one literal on its line. */
#ifndef SOFTND_VERBS_IDENTITY_H
#define SOFTND_VERBS_IDENTITY_H

#define DEVICE_NAME "softnd0" /* SOFTND_VERBS_DEVICE gives it another one */
#define DEVICE_NODE "uverbs_softnd0" /* below /dev/infiniband. A card's node is uverbs and a number */
#define DEVICE_SYSFS "/sys/class/infiniband/"
#define DEVICE_NODE_SYSFS "/sys/class/infiniband_verbs/" DEVICE_NODE

#define NODE_TYPE "1: CA"
#define NODE_GUID 0x02736f66746e6400 /* locally administered: its second bit is set */
#define NODE_GUID_TEXT "0273:6f66:746e:6400"
#define NODE_DESCRIPTION "softnd"
#define BOARD_ID "softnd"
#define FIRMWARE_VERSION "0.1.0"

/* UCX and perftest treat the vendors that they know in their own way. This one is none of them. */
#define VENDOR_ID 0xffffff
#define VENDOR_PART_ID 0
#define HARDWARE_VERSION 0

/* The port. The first GID is fe80::/64 and the GUID, the others of the table are empty. */
#define PORT_GIDS 2
#define PORT_GID_TEXT "fe80:0000:0000:0000:0273:6f66:746e:6400"
#define PORT_GID_PREFIX 0xfe80000000000000
#define PORT_GID_TYPE "IB/RoCE v1"
#define PORT_LID 1
#define PORT_LID_TEXT "0x1"
#define PORT_SM_LID 1
#define PORT_PKEY 0xffff
#define PORT_PKEY_TEXT "0xffff"
#define PORT_STATE_TEXT "4: ACTIVE"
#define PORT_PHYS_STATE_TEXT "5: LinkUp"
#define PORT_LINK_LAYER_TEXT "InfiniBand"
#define PORT_RATE_TEXT "200 Gb/sec (4X HDR)"
#define PORT_WIDTH 2 /* 4X */
#define PORT_SPEED 64 /* HDR */

#endif
