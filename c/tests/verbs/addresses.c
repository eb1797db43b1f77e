/* LID, GUID and GIDs of fabrics, the files that show them, and paths to other fabrics. */
#include "sides.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

/* The call is not in verbs.h. */
int ibv_read_sysfs_file(const char *folder, const char *file, char *text, size_t size);

struct port {
	struct ibv_port_attr attr;
	union ibv_gid gids[4];
};

static struct port port_of(struct ibv_context *c)
{
	struct port p = {0};
	CHECK(ibv_query_port(c, 1, &p.attr) == 0 && p.attr.gid_tbl_len == 4);
	for (int i = 0; i < p.attr.gid_tbl_len; i++)
		CHECK(ibv_query_gid(c, 1, i, &p.gids[i]) == 0);
	CHECK(p.gids[0].global.subnet_prefix == htobe64(0xfe80000000000000) && p.gids[0].global.interface_id == ibv_get_device_guid(c->device));
	return p;
}

/* port_in returns the port as a process in another fabric sees it. */
static struct port port_in(struct ibv_context *c, const char *fabric)
{
	char *own = strdup(getenv("SOFTND_VERBS_FABRIC"));
	CHECK(setenv("SOFTND_VERBS_FABRIC", fabric, 1) == 0);
	const struct port p = port_of(c);
	CHECK(setenv("SOFTND_VERBS_FABRIC", own, 1) == 0);
	free(own);
	return p;
}

enum { NAME = 64 };

/* port_elsewhere returns the port in a fabric with other addresses than p, and the name of that. Addresses are hashes of names, so two fabrics may
 * have the same ones, but few have. */
static struct port port_elsewhere(struct ibv_context *c, const struct port *p, char name[NAME])
{
	for (int i = 0;; i++) {
		CHECK(i < 10);
		snprintf(name, NAME, "another-%d-%d", (int)getpid(), i);
		const struct port other = port_in(c, name);
		if (other.attr.lid != p->attr.lid || memcmp(&other.gids[2], &p->gids[2], sizeof p->gids[2]) != 0)
			return other;
	}
}

static void check_file(const char *name, const char *want)
{
	char text[64];
	CHECK(ibv_read_sysfs_file("/sys/class/infiniband/softnd0", name, text, sizeof text) == (int)strlen(want) && strcmp(text, want) == 0);
}

/* check_files compares files with answers. */
static void check_files(const struct port *p, const char *link)
{
	char want[64], name[64];
	const union ibv_gid empty = {{0}};
	snprintf(want, sizeof want, "%#x", p->attr.lid);
	check_file("ports/1/lid", want);
	check_file("ports/1/link_layer", link);
	for (int i = 0; i < 4; i++) {
		const uint8_t *b = p->gids[i].raw;
		const int is_empty = memcmp(b, &empty, sizeof empty) == 0;
		int n = 0;
		for (int k = 0; k < 16; k += 2)
			n += snprintf(want + n, sizeof want - (size_t)n, "%s%02x%02x", k == 0 ? "" : ":", b[k], b[k + 1]);
		snprintf(name, sizeof name, "ports/1/gids/%d", i);
		check_file(name, is_empty ? "" : want);
		snprintf(name, sizeof name, "ports/1/gid_attrs/types/%d", i);
		check_file(name, is_empty ? "" : i % 2 == 0 ? "IB/RoCE v1" : "RoCE v2");
		if (i == 0)
			check_file("node_guid", want + 20);
	}
}

/* A fabric has the same addresses in each run, and others than another fabric. */
static void test_infiniband(struct ibv_context *c)
{
	char name[NAME];
	const struct port a = port_of(c), b = port_elsewhere(c, &a, name), again = port_of(c);
	const union ibv_gid empty = {{0}};
	CHECK(memcmp(&a, &again, sizeof a) == 0);
	CHECK(a.attr.lid != 0 && a.attr.lid < 0xc000 && a.attr.lid != b.attr.lid && memcmp(a.gids, b.gids, sizeof a.gids) != 0);
	CHECK(a.attr.link_layer == IBV_LINK_LAYER_INFINIBAND && memcmp(&a.gids[1], &empty, sizeof empty) == 0);
	check_files(&a, "InfiniBand");
	struct port job = a;
	for (int i = 0; job.attr.lid == a.attr.lid && i < 10; i++) {
		snprintf(name, sizeof name, "softnd-job-%d:34:56", i);
		CHECK(setenv("SOFTND_CONTROL", name, 1) == 0); /* that of the job comes first */
		job = port_of(c);
	}
	const struct port other = port_in(c, "another");
	CHECK(memcmp(&job, &other, sizeof job) == 0 && job.attr.lid != a.attr.lid);
	CHECK(unsetenv("SOFTND_CONTROL") == 0);
}

static void test_roce(struct ibv_context *c)
{
	struct ibv_gid_entry entries[4];
	CHECK(setenv("SOFTND_VERBS_LINK", "roce", 1) == 0);
	char name[NAME];
	const struct port p = port_of(c), b = port_elsewhere(c, &p, name);
	CHECK(p.attr.lid == 0 && p.attr.link_layer == IBV_LINK_LAYER_ETHERNET && p.attr.flags == IBV_QPF_GRH_REQUIRED);
	CHECK(ibv_query_gid_table(c, entries, 4, 0) == 4 && ibv_query_gid_table(c, entries, 3, 0) == -EINVAL);
	for (uint32_t i = 0; i < 4; i++) {
		struct ibv_gid_entry one;
		CHECK(ibv_query_gid_ex(c, 1, i, &one, 0) == 0 && memcmp(&one, &entries[i], sizeof one) == 0);
		CHECK(one.gid_index == i && one.ndev_ifindex == 1 && one.gid_type == (i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2));
		CHECK(memcmp(&one.gid, &p.gids[i], sizeof one.gid) == 0 && memcmp(&one.gid, &b.gids[i], sizeof one.gid) != 0);
		CHECK((i < 2 ? one.gid.raw[0] == 0xfe : IN6_IS_ADDR_V4MAPPED((struct in6_addr *)(void *)one.gid.raw) && one.gid.raw[12] == 127));
	}
	CHECK(memcmp(&p.gids[0], &p.gids[1], 16) == 0 && memcmp(&p.gids[2], &p.gids[3], 16) == 0);
	check_files(&p, "Ethernet");
	CHECK(setenv("SOFTND_VERBS_LINK", "token ring", 1) == 0);
	CHECK(ibv_get_device_list(NULL) == NULL && errno == EINVAL);
	CHECK(unsetenv("SOFTND_VERBS_LINK") == 0);
}

/* said stores what a transition to RTR over a path prints, and returns its error. */
static int said(struct side *s, struct ibv_ah_attr path, char *text, size_t size)
{
	FILE *to = tmpfile();
	const int old = dup(STDERR_FILENO);
	CHECK(to != NULL && old >= 0 && move(s->qp, IBV_QPS_RESET, 0) == 0 && move(s->qp, IBV_QPS_INIT, 0) == 0);
	CHECK(dup2(fileno(to), STDERR_FILENO) == STDERR_FILENO && setenv("SOFTND_DEBUG", "1", 1) == 0);
	struct ibv_qp_attr attr = attributes(IBV_QPS_RTR, s->qp->qp_num);
	path.port_num = 1;
	attr.ah_attr = path;
	const int error = ibv_modify_qp(s->qp, &attr, RTR_MASK);
	CHECK(dup2(old, STDERR_FILENO) == STDERR_FILENO && unsetenv("SOFTND_DEBUG") == 0);
	rewind(to);
	text[fread(text, 1, size - 1, to)] = '\0';
	fclose(to);
	close(old);
	return error;
}

/* port_of_none returns the port in a fabric whose LID is that of no fabric with members, and the name of it, which begins with what. */
static struct port port_of_none(struct side *s, const char *what, char name[NAME])
{
	char text[600];
	for (int i = 0;; i++) {
		CHECK(i < 10);
		snprintf(name, NAME, "%s-%d-%d", what, (int)getpid(), i);
		const struct port p = port_in(s->context, name);
		CHECK(said(s, (struct ibv_ah_attr){.dlid = p.attr.lid}, text, sizeof text) == 0);
		if (strstr(text, " is not that of fabric \"") != NULL)
			return p;
	}
}

/* A path to another fabric is accepted, as on a card, and named if it has members. */
static void test_paths(struct ibv_context *c)
{
	static struct side s;
	char text[600], want[200], fabric[NAME];
	int up[2], down[2];
	open_side(&s, c, 0);
	make_qp(&s, 0, 0);
	const struct port own = port_of(c), other = port_of_none(&s, "other", fabric);
	CHECK(pipe(up) == 0 && pipe(down) == 0);
	const pid_t member = fork();
	if (member == 0) {
		close(down[1]);
		CHECK(setenv("SOFTND_VERBS_FABRIC", fabric, 1) == 0);
		open_side(&s, open_device(), 0);
		CHECK(write(up[1], "", 1) == 1 && read(down[0], text, 1) == 0);
		_exit(0);
	}
	close(down[0]);
	CHECK(read(up[0], text, 1) == 1);
	CHECK(said(&s, (struct ibv_ah_attr){.dlid = own.attr.lid}, text, sizeof text) == 0 && text[0] == '\0');
	CHECK(said(&s, (struct ibv_ah_attr){.is_global = 1, .grh = {.dgid = own.gids[0]}}, text, sizeof text) == 0 && text[0] == '\0');
	snprintf(want, sizeof want, " is fabric \"%s\" of user %d, this process is in fabric \"%s\" of user %d", fabric, (int)geteuid(), getenv("SOFTND_VERBS_FABRIC"), (int)geteuid());
	CHECK(said(&s, (struct ibv_ah_attr){.dlid = other.attr.lid}, text, sizeof text) == 0 && strncmp(text, "softnd: modify queue pair: LID 0x", 33) == 0 && strstr(text, want) != NULL);
	CHECK(said(&s, (struct ibv_ah_attr){.is_global = 1, .grh = {.dgid = other.gids[0]}}, text, sizeof text) == 0 && strstr(text, ": GID fe80::273:6e64:") != NULL && strstr(text, want) != NULL);
	(void)port_of_none(&s, "nowhere", fabric);
	CHECK(said(&s, (struct ibv_ah_attr){.is_global = 1, .grh = {.dgid = own.gids[0], .sgid_index = 1}}, text, sizeof text) == EINVAL && strstr(text, "entry 1 of the GID table is empty") != NULL);
	CHECK(setenv("SOFTND_VERBS_LINK", "roce", 1) == 0);
	CHECK(said(&s, (struct ibv_ah_attr){.dlid = own.attr.lid}, text, sizeof text) == EINVAL && strstr(text, "the path has no GID") != NULL);
	const struct port ethernet = port_of(c);
	CHECK(said(&s, (struct ibv_ah_attr){.is_global = 1, .grh = {.dgid = ethernet.gids[3], .sgid_index = 3}}, text, sizeof text) == 0 && text[0] == '\0');
	CHECK(unsetenv("SOFTND_VERBS_LINK") == 0);
	close_side(&s);
	close(down[1]);
	int status;
	CHECK(waitpid(member, &status, 0) == member && status == 0);
}

int main(void)
{
	name_fabric("addresses");
	struct ibv_context *c = open_device();
	test_infiniband(c);
	test_roce(c);
	test_paths(c);
	CHECK(ibv_close_device(c) == 0);
	return 0;
}
