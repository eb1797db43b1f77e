/* With SOFTND_DUMP_ARENA=1, core dumps contain what the process has allocated in the arena, and not the rest of the arena. */
#include <stdint.h>
#include <string.h>

#include "check.h"

/* is_dumped reports whether core dumps contain the mapping at an address. */
static int is_dumped(const void *memory)
{
	char line[512];
	unsigned long start, end;
	int within = 0, dumped = -1;
	FILE *f = fopen("/proc/self/smaps", "r");
	CHECK(f != NULL);
	while (dumped < 0 && fgets(line, sizeof line, f) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			within = start <= (uintptr_t)memory && (uintptr_t)memory < end;
		else if (within && strncmp(line, "VmFlags:", 8) == 0)
			dumped = strstr(line, " dd") == NULL;
	}
	fclose(f);
	CHECK(dumped >= 0);
	return dumped;
}

static void check_dump(const char *value, int wanted)
{
	enum { SIZE = 1 << 20 };
	snd_fabric *f;
	snd_adapter *a;
	snd_mr *mr;
	setenv("SOFTND_DUMP_ARENA", value, 1);
	OK(snd_fabric_create(0, UINT64_C(1) << 28, MANUAL, &f));
	OK(snd_adapter_open(f, &a));
	OK(snd_mr_allocate(a, SIZE, SND_ALLOW_LOCAL_WRITE, &mr));
	unsigned char *memory = snd_mr_buffer(mr);
	CHECK(is_dumped(memory) == wanted && is_dumped(memory + SIZE - 1) == wanted && !is_dumped(memory + SIZE));
	OK(snd_mr_close(mr, 0));
	CHECK(!is_dumped(memory));
	OK(snd_fabric_close(f));
}

int main(void)
{
	check_dump("0", 0);
	check_dump("1", 1);
	return 0;
}
