/* Where the memory of regions is: huge pages, page tables, NUMA nodes. The machine may lack any of them. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "two_members.h"

enum { SIZE = (3 << 20) + 1, HUGE = 2 << 20 };

static const uint32_t all_flags = SND_HUGE_PAGES | SND_PREFAULT | SND_REQUIRE_PLACEMENT | SND_ON_NODE(1022);

/* huge_bytes returns how much of the mapping at an address is in huge pages. */
static long huge_bytes(const void *address)
{
	char line[512];
	unsigned long from, to;
	long kib = -1;
	bool inside = false;
	FILE *f = fopen("/proc/self/smaps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof line, f) != NULL) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = from <= (uintptr_t)address && (uintptr_t)address < to;
		if (inside && sscanf(line, "ShmemPmdMapped: %ld kB", &kib) == 1)
			break;
	}
	fclose(f);
	CHECK(kib >= 0);
	return kib << 10;
}

static void test_allocate(void)
{
	static const struct {
		uint32_t flags;
		const char *why;
	} rows[] = {
		{SND_HUGE_PAGES, "huge pages: "},
		{SND_PREFAULT, "prefault: "},
		{SND_ON_NODE(0), "NUMA node 0: "},
		{SND_ON_NODE(1022), "NUMA node 1022: "},
		{SND_HUGE_PAGES | SND_PREFAULT | SND_ON_NODE(0), ": "},
		{SND_HUGE_PAGES | SND_ON_NODE(1022), "NUMA node 1022: "},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const uint32_t flags = rows[i].flags;
		snd_mr *mr;
		OK(snd_mr_allocate(a.adapter, SIZE, flags | SND_ALLOW_REMOTE_WRITE, &mr));
		const uint32_t got = snd_mr_placement(mr);
		unsigned char *memory = snd_mr_buffer(mr);
		CHECK((got & ~flags) == 0 && (flags & SND_ON_NODE(1022)) != SND_ON_NODE(1022) ? true : (got & SND_ON_NODE(1022)) == 0);
		CHECK((got & SND_HUGE_PAGES) == 0 || ((uintptr_t)memory % HUGE == 0 && huge_bytes(memory) >= SIZE));
		CHECK(snd_mr_length(mr) == SIZE);
		for (int k = 0; k < SIZE; k++)
			CHECK(memory[k] == 0);
		memset(memory, 7, SIZE);
		OK(snd_mr_close(mr, SECOND));

		const snd_status s = snd_mr_allocate(a.adapter, SIZE, flags | SND_REQUIRE_PLACEMENT, &mr);
		/* Whether the kernel has huge pages can change between two calls, the rest cannot. */
		CHECK((flags & SND_HUGE_PAGES) != 0 || (s == SND_SUCCESS) == (got == flags));
		if (s == SND_SUCCESS) {
			CHECK(snd_mr_placement(mr) == flags);
			OK(snd_mr_close(mr, SECOND));
		} else {
			CHECK(s == SND_NOT_SUPPORTED && mr == NULL && strstr(snd_last_error(), rows[i].why) != NULL && strstr(snd_last_error(), "ndinfo") != NULL);
		}
		printf("%#x: %#x\n", flags, got);
	}
}

/* A wish that is not fulfilled is no failure: the text of the latest one stays. */
static void test_wish(void)
{
	snd_mr *mr;
	CHECK(snd_mr_allocate(a.adapter, 0, 0, &mr) == SND_INVALID_BUFFER_SIZE);
	char text[200];
	snprintf(text, sizeof text, "%s", snd_last_error());
	OK(snd_mr_allocate(a.adapter, 100, SND_ON_NODE(1022), &mr));
	CHECK(snd_mr_placement(mr) == 0 && strcmp(text, snd_last_error()) == 0);
	OK(snd_mr_close(mr, SECOND));
	CHECK(snd_mr_allocate(a.adapter, UINT64_C(1) << 36, SND_HUGE_PAGES, &mr) == SND_NO_MEMORY);
	CHECK(snd_mr_allocate(a.adapter, 100, 0x40000000u, &mr) == SND_INVALID_PARAMETER);
}

static void test_register(void)
{
	for (int i = 0; i < 2; i++) {
		snd_mr *mr;
		unsigned char resident[SIZE / SND_PAGE_SIZE + 1] = {0};
		size_t n = 0;
		unsigned char *memory = mmap(NULL, SIZE, i == 0 ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		CHECK(memory != MAP_FAILED);
		OK(snd_mr_register(a.adapter, memory + 1, SIZE - 1, SND_PREFAULT, &mr));
		CHECK(mincore(memory, SIZE, resident) == 0);
		for (size_t k = 0; k < sizeof resident; k++)
			n += resident[k] & 1;
		CHECK(snd_mr_placement(mr) == 0 || n == sizeof resident);
		OK(snd_mr_close(mr, SECOND));
		CHECK(snd_mr_register(a.adapter, memory, SIZE, SND_HUGE_PAGES, &mr) == SND_INVALID_PARAMETER);
		CHECK(snd_mr_register(a.adapter, memory, SIZE, SND_ON_NODE(0), &mr) == SND_INVALID_PARAMETER);
		OK(snd_mr_register(a.adapter, memory, SIZE, SND_REQUIRE_PLACEMENT, &mr));
		CHECK(snd_mr_placement(mr) == 0);
		OK(snd_mr_close(mr, SECOND));
		CHECK(munmap(memory, SIZE) == 0);
	}
}

/* Peers use placed memory as any other, also after its owner has freed and allocated it again. */
static void test_transfer(void)
{
	snd_mr *mine;
	OK(snd_mr_allocate(a.adapter, 64, SND_ALLOW_LOCAL_WRITE, &mine));
	memset(snd_mr_buffer(mine), 9, 64);
	for (int i = 0; i < 3; i++) {
		snd_mr *theirs;
		const snd_sge s = snd_mr_sge(mine, 0, 64);
		OK(snd_mr_allocate(b.adapter, HUGE, (all_flags & ~SND_REQUIRE_PLACEMENT) | SND_ALLOW_REMOTE_WRITE, &theirs));
		OK(snd_endpoint_write(a.ep, 1, &s, 1, snd_mr_address(theirs) + HUGE - 64, snd_mr_remote_token(theirs), 0));
		WANT(a.cq, SND_REQUEST_WRITE, 1, SND_SUCCESS);
		const unsigned char *memory = snd_mr_buffer(theirs);
		CHECK(memory[HUGE - 65] == 0 && memory[HUGE - 64] == 9 && memory[HUGE - 1] == 9);
		OK(snd_mr_close(theirs, SECOND));
	}
	OK(snd_mr_close(mine, SECOND));
}

/* The chunks that a search for huge pages claims beside them are free again. */
static void test_search(void)
{
	snd_fabric *fabric; /* with room for some 50 huge pages */
	snd_adapter *adapter;
	OK(snd_fabric_create(0, UINT64_C(160) << 20, MANUAL, &fabric));
	OK(snd_adapter_open(fabric, &adapter));
	for (int round = 0; round < 8; round++) {
		snd_mr *before[20], *mr;
		for (uint64_t i = 0; i < 20; i++) {
			OK(snd_mr_allocate(adapter, (1 + i) << 16, 0, &before[i])); /* the next search claims chunks on both sides of the huge page */
			const snd_status s = snd_mr_allocate(adapter, 100, SND_HUGE_PAGES | SND_REQUIRE_PLACEMENT, &mr);
			if (s == SND_SUCCESS)
				OK(snd_mr_close(mr, SECOND));
			else /* the kernel may have none */
				CHECK(s == SND_NOT_SUPPORTED && strstr(snd_last_error(), "contiguous") == NULL);
		}
		for (int i = 0; i < 20; i++)
			OK(snd_mr_close(before[i], SECOND));
	}
	OK(snd_fabric_close(fabric));
}

int main(void)
{
	open_members(SND_EXECUTOR_AUTO);
	connect_members(NULL);
	test_allocate();
	test_wish();
	test_register();
	test_transfer();
	test_search();
	disconnect_members();
	close_members();
	return 0;
}
