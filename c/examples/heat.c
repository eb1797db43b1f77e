/* The diffusion of heat on a grid, divided among the ranks of a job: examples/heat in C.
 *
 *	ndrun -n 4 ./heat_c -steps 2000 -in start.pgm -out heat.pgm -verify
 *	ndrun -n 2 ./heat -verify : -n 2 ./heat_c
 *
 * It follows the same protocol and rounds in the same places as the Go program, so ranks of both
 * compute one picture. Compile it with -ffp-contract=off. Pictures are binary PGM files of 8 bits.
 */
#include <softnd/softnd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT INT64_C(60000000000)
#define PROBLEM 512 /* bytes of the text of a mistake, before the value of each rank */
#define DESCRIPTOR SND_WINDOW_DESCRIPTOR_SIZE
#define MAX_RANKS 1024

static snd_job *job;
static uint32_t rank, ranks;
static snd_cq *cq;
static snd_mr *mr, *sheet_mr;
static snd_endpoint *peers[MAX_RANKS];
static size_t width, height, first, rows;
static double *cells, *sheet;
static unsigned arrived_above, arrived_below, done;
static uint64_t moved, max_transfer;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "heat: rank %u: %s: %s\n", rank, what, why);
	exit(1);
}

#define MUST(call) must(call, #call)
static void must(snd_status s, const char *call)
{
	if (s != SND_SUCCESS)
		fail(call, snd_last_error());
}

static void *allocate(size_t n)
{
	void *p = calloc(n, 1);
	if (p == NULL)
		fail("memory", "too little");
	return p;
}

static void put(unsigned char *to, uint64_t v)
{
	for (int i = 7; i >= 0; i--, v >>= 8)
		to[i] = (unsigned char)v;
}

static uint64_t get(const unsigned char *from)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | from[i];
	return v;
}

/* gather stores the values of all ranks one after the other. It ends the program if a rank has a problem. */
static void gather(const unsigned char *mine, size_t n, unsigned char *values)
{
	unsigned char *one = allocate(PROBLEM + n), *all = allocate(ranks * (PROBLEM + n));
	if (n > 0)
		memcpy(one + PROBLEM, mine, n);
	MUST(snd_job_exchange(job, one, PROBLEM + n, all, LIMIT));
	for (uint32_t r = 0; r < ranks; r++) {
		const unsigned char *from = all + r * (PROBLEM + n);
		if (from[0] != 0) {
			MUST(snd_job_barrier(job, LIMIT)); /* rank 0 prints the problem first */
			exit(1);
		}
		if (n > 0)
			memcpy(values + r * n, from + PROBLEM, n);
	}
	free(one);
	free(all);
}

static size_t first_of(uint32_t r) { return r * height / ranks; }

/* row returns row y of a generation; -1 and rows are beyond the edges. The layout is the Go program's. */
static double *row(unsigned generation, long y)
{
	size_t parity = generation & 1, at = 2 + parity * rows + (size_t)y;
	if (y == -1)
		at = parity;
	else if ((size_t)y == rows)
		at = 2 + 2 * rows + parity;
	return cells + at * width;
}

/* results waits for results. A completed receive means that a row has arrived. */
static void results(void)
{
	snd_result r[16];
	uint32_t n;
	MUST(snd_cq_wait(cq, r, 16, LIMIT, &n));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t peer = (uint32_t)r[i].endpoint_context;
		if (r[i].status != SND_SUCCESS)
			fail("request", snd_status_name(r[i].status));
		if (r[i].type != SND_REQUEST_RECEIVE) {
			done++;
			continue;
		}
		*(peer < rank ? &arrived_above : &arrived_below) += 1;
		MUST(snd_endpoint_receive(peers[peer], 0, NULL, 0));
	}
}

static void wait_for_one(void)
{
	while (done == 0)
		results();
	done = 0;
}

/* bind binds a new window and stores its descriptor. */
static snd_window *bind(uint32_t peer, snd_mr *region, double *at, size_t count, uint32_t rights, unsigned char *descriptor)
{
	snd_window *w;
	snd_window_descriptor d;
	MUST(snd_window_create(snd_job_adapter(job), &w));
	MUST(snd_endpoint_bind(peers[peer], 0, region, w, at, count * width * sizeof *at, rights));
	wait_for_one();
	MUST(snd_window_query(w, &d));
	snd_window_descriptor_encode(&d, descriptor);
	return w;
}

/* load reads count rows from row y of a peer's window. */
static void load(uint32_t peer, snd_mr *into, double *to, size_t count, snd_window_descriptor from, size_t y)
{
	size_t length = count * width * sizeof *to;
	for (size_t at = 0; at < length;) {
		size_t n = length - at < max_transfer ? length - at : max_transfer;
		snd_sge s = {(char *)to + at, (uint32_t)n, snd_mr_local_token(into)};
		MUST(snd_endpoint_read(peers[peer], 0, &s, 1, from.address + y * width * sizeof *to + at, from.token, 0));
		wait_for_one();
		moved += n;
		at += n;
	}
}

/* send_row writes a row into the neighbour's window, and sends the empty message that follows it. */
static void send_row(uint32_t peer, const unsigned char *descriptor, unsigned generation, size_t y)
{
	size_t n = width * sizeof *cells;
	snd_window_descriptor to;
	snd_window_descriptor_decode(descriptor, &to);
	snd_sge s = {row(generation, (long)y), (uint32_t)n, snd_mr_local_token(mr)};
	MUST(snd_endpoint_write(peers[peer], 0, &s, 1, to.address + n * (generation & 1), to.token, SND_SILENT_SUCCESS));
	MUST(snd_endpoint_send(peers[peer], 0, NULL, 0, SND_SILENT_SUCCESS));
	moved += n;
}

static void spread_row(double *next, const double *north, const double *here, const double *south)
{
	next[0] = here[0];
	next[width - 1] = here[width - 1];
	for (size_t x = 1; x + 1 < width; x++)
		next[x] = here[x] + 0.2 * (((north[x] + south[x]) + (here[x - 1] + here[x + 1])) - 4 * here[x]);
}

static void spread(unsigned g, size_t y)
{
	if (first + y == 0 || first + y == height - 1)
		memcpy(row(g + 1, (long)y), row(g, (long)y), width * sizeof *cells);
	else
		spread_row(row(g + 1, (long)y), row(g, (long)y - 1), row(g, (long)y), row(g, (long)y + 1));
}

/* start_picture returns the temperatures to start from: those of a file, or a hot square. */
static double *start_picture(const char *name)
{
	FILE *f = name != NULL ? fopen(name, "rb") : NULL;
	width = 192, height = 128;
	if (name != NULL && (f == NULL || fscanf(f, "P5 %zu %zu 255", &width, &height) != 2 || fgetc(f) == EOF || width < 1 || width > 65536 || height > 65536))
		fail(name, "not a binary PGM file of 8 bits");
	double *t = allocate(width * height * sizeof *t);
	for (size_t i = 0; i < width * height; i++) {
		size_t x = i % width, y = i / width;
		int c = f != NULL ? fgetc(f) : x > width / 4 && x < width / 2 && y > height / 4 && y < height / 2 ? 255 : 0;
		if (c == EOF)
			fail(name, "the file is too short");
		t[i] = 100.0 * (double)(c * 257) / 65535;
	}
	if (f != NULL)
		fclose(f);
	return t;
}

/* verify computes everything once more and compares every bit. */
static void verify(double *now, unsigned steps)
{
	double *next = allocate(width * height * sizeof *next), *const own = next;
	memcpy(next, now, width * height * sizeof *next);
	for (unsigned g = 0; g < steps; g++) {
		for (size_t y = 1; y + 1 < height; y++)
			spread_row(next + y * width, now + (y - 1) * width, now + y * width, now + (y + 1) * width);
		double *t = now;
		now = next, next = t;
	}
	if (memcmp(now, sheet, width * height * sizeof *now) != 0)
		fail("verify", "not the serial result");
	free(own);
	puts("heat: identical to the serial result");
}

static void write_picture(const char *name)
{
	FILE *f = fopen(name, "wb");
	if (f == NULL)
		fail(name, "cannot write the file");
	fprintf(f, "P5\n%zu %zu\n255\n", width, height);
	for (size_t i = 0; i < width * height; i++)
		fputc((int)(sheet[i] * 2.55 + 0.5), f);
	if (fclose(f) != 0)
		fail(name, "cannot write the file");
}

int main(int argc, char **argv)
{
	unsigned steps = 500;
	const char *in = NULL, *out = NULL;
	int check = 0;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-verify") == 0)
			check = 1;
		else if (i + 1 < argc && strcmp(argv[i], "-steps") == 0)
			steps = (unsigned)atoi(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "-in") == 0)
			in = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "-out") == 0)
			out = argv[++i];
		else
			fail(argv[i], "not a flag: want -in, -out, -steps, -verify");
	}
	MUST(snd_job_init(NULL, LIMIT, &job));
	rank = snd_job_rank(job), ranks = snd_job_size(job);
	if (ranks > MAX_RANKS)
		fail("ranks", "too many");
	snd_adapter *adapter = snd_job_adapter(job);
	snd_adapter_info info;
	MUST(snd_adapter_query(adapter, &info));
	max_transfer = info.max_transfer;

	double *start = rank == 0 ? start_picture(in) : NULL;
	unsigned char size[16], *sizes = allocate(16 * ranks);
	put(size, width), put(size + 8, height);
	gather(size, sizeof size, sizes);
	width = get(sizes), height = get(sizes + 8);
	if (height < ranks)
		fail("picture", "fewer rows than ranks");
	first = first_of(rank), rows = first_of(rank + 1) - first;
	MUST(snd_mr_allocate(adapter, (2 * rows + 4) * width * sizeof *cells, SND_ALLOW_LOCAL_WRITE, &mr));
	cells = snd_mr_buffer(mr);
	if (rank == 0) {
		MUST(snd_mr_allocate(adapter, width * height * sizeof *sheet, SND_ALLOW_LOCAL_WRITE, &sheet_mr));
		sheet = snd_mr_buffer(sheet_mr);
		memcpy(sheet, start, width * height * sizeof *sheet);
	}
	gather(NULL, 0, NULL);

	int above = rank > 0, below = rank + 1 < ranks;
	if (ranks > 1)
		MUST(snd_cq_create(adapter, ranks * 12, &cq));
	for (uint32_t p = 0; p < ranks; p++) {
		int neighbour = p + 1 == rank || p == rank + 1;
		if (p == rank || (!neighbour && p != 0 && rank != 0))
			continue;
		snd_endpoint_config config = {0};
		config.receive_cq = config.initiator_cq = cq;
		config.context = p, config.receive_depth = 4, config.initiator_depth = 8;
		MUST(snd_job_connect(job, p, &config, LIMIT, &peers[p]));
		for (int i = 0; i < 4 && neighbour; i++)
			MUST(snd_endpoint_receive(peers[p], 0, NULL, 0));
	}
	unsigned char mine[3 * DESCRIPTOR] = {0}, *all = allocate(ranks * sizeof mine);
	snd_window *sheet_window = NULL;
	if (above)
		bind(rank - 1, mr, row(0, -1), 2, SND_ALLOW_WRITE | SND_THIS_ENDPOINT_ONLY, mine + DESCRIPTOR);
	if (below)
		bind(rank + 1, mr, row(0, (long)rows), 2, SND_ALLOW_WRITE | SND_THIS_ENDPOINT_ONLY, mine + 2 * DESCRIPTOR);
	if (rank == 0 && ranks > 1)
		sheet_window = bind(1, sheet_mr, sheet, height, SND_ALLOW_READ, mine);
	gather(mine, sizeof mine, all);
	if (rank == 0) {
		memcpy(row(0, 0), sheet, rows * width * sizeof *cells);
		if (below)
			memcpy(row(0, (long)rows), sheet + rows * width, width * sizeof *cells);
	} else {
		snd_window_descriptor from;
		snd_window_descriptor_decode(all, &from);
		if (below)
			load(0, mr, row(0, (long)rows), 1, from, first + rows);
		load(0, mr, row(0, -1), 1, from, first - 1);
		load(0, mr, row(0, 0), rows, from, first);
	}
	MUST(snd_job_barrier(job, LIMIT));
	if (sheet_window != NULL) {
		MUST(snd_endpoint_invalidate(peers[1], 0, sheet_window, 0));
		wait_for_one();
	}

	for (unsigned g = 0; g < steps; g++) {
		while ((above && arrived_above < g) || (below && arrived_below < g))
			results();
		spread(g, 0);
		if (rows > 1)
			spread(g, rows - 1);
		if (g + 1 < steps && above)
			send_row(rank - 1, all + (3 * (rank - 1) + 2) * DESCRIPTOR, g + 1, 0);
		if (g + 1 < steps && below)
			send_row(rank + 1, all + (3 * (rank + 1) + 1) * DESCRIPTOR, g + 1, rows - 1);
		for (size_t y = 1; y + 1 < rows; y++)
			spread(g, y);
	}
	MUST(snd_job_barrier(job, LIMIT));

	unsigned char result[DESCRIPTOR + 8] = {0}, *from = allocate(ranks * sizeof result);
	if (rank > 0)
		bind(0, mr, row(steps, 0), rows, SND_ALLOW_READ | SND_THIS_ENDPOINT_ONLY, result);
	put(result + DESCRIPTOR, moved);
	gather(result, sizeof result, from);
	if (rank == 0) {
		memcpy(sheet, row(steps, 0), rows * width * sizeof *cells);
		for (uint32_t p = 1; p < ranks; p++) {
			snd_window_descriptor d;
			snd_window_descriptor_decode(from + p * sizeof result, &d);
			load(p, sheet_mr, sheet + first_of(p) * width, first_of(p + 1) - first_of(p), d, 0);
		}
	}
	MUST(snd_job_barrier(job, LIMIT));
	if (rank == 0) {
		printf("heat: %zux%zu, %u ranks, %u steps\n", width, height, ranks, steps);
		if (out != NULL)
			write_picture(out);
		if (check)
			verify(start, steps);
	}
	MUST(snd_job_close(job));
	free(start), free(sizes), free(all), free(from);
	return 0;
}
