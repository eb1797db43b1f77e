/*
 * The invalidation handshake, for Spin.
 *
 * A process that has a window's token may read and write a range of the owner's memory. Invalidate ends that, and its
 * completion is a promise: from then on no process accesses the range through that token. This is the handshake that
 * keeps the promise, with the labels of the code. The promise is stated as assertions. A macro takes out each step, and
 * check.sh shows that without it an assertion fails.
 *
 *	executor (the peer), per transfer       owner
 *	---------------------------------       -----
 *	HAZARD-PUBLISH  hazard := token         ENTRY-BIND        fields, then word := valid + new tag
 *	ENTRY-CHECK     word is this token?     ENTRY-INVALIDATE  word := invalid, the tag stays in it
 *	ENTRY-FIELDS    base, length, bounds    HAZARD-DRAIN      wait: no live hazard names the token
 *	COPY            one chunk               completion        the memory is the owner's again
 *	ENTRY-RECHECK   word still this token?  reuse             write it; bind the entry to another range
 *	                if so, the next chunk
 *	HAZARD-CLEAR    hazard := 0
 *
 * The proof: at HAZARD-PUBLISH and ENTRY-INVALIDATE each side stores its own word, and at ENTRY-CHECK and HAZARD-DRAIN it
 * loads the other's. So either the executor finds that the token is invalid, or the owner finds the hazard and waits.
 * Both stores must be in memory before the loads; see TSO.
 *
 * The executor reads or writes with any token: the present one, a stale one, or one that it guessed before the
 * binding exists. It asks for more than the range, and its process may die between any two steps. The owner binds
 * range A, then B, then A again, and writes each range as soon as it has it back.
 *
 * Sizes, to be given with -D:
 *	NEXEC     executors, each with its own hazard, that is queue pairs   1
 *	MORTAL    executors that may die                                     all
 *	NXFER     transfers that an executor attempts, until one fails       2
 *	NBIND     bindings that the owner makes, one after another           3
 *	ONE_SIZE  (no value) a transfer covers its binding's whole range, rather than one chunk or two
 *
 * Variants, in which all claims hold:
 *	TSO         each process stores through a first-in-first-out store buffer, as on amd64; HAZARD-PUBLISH and
 *	            ENTRY-INVALIDATE are exchanges, which empty it; all other stores are plain
 *	REJOIN      a new member may take a dead executor's place, hazard included
 *	OWNER_DIES  the owner may die at any point; a survivor invalidates in its place and takes the memory
 *	GROWS       an executor's hazard is added to those that are counted when the executor begins
 *	PEEK        the executor also loads the entry before HAZARD-PUBLISH
 *
 * Two variants have steps that the code does not take. No survivor invalidates for a dead owner (OWNER_DIES): the
 * memory is given back as in reclaim.pml. No member clears a hazard word that it takes over (REJOIN): a hazard is in
 * memory that Member.Alloc has zeroed, and Domain.drained ignores that of a dead member.
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	NO_PUBLISH          HAZARD-PUBLISH
 *	NO_CHECK            ENTRY-CHECK
 *	CHECK_FIRST         ENTRY-CHECK before HAZARD-PUBLISH
 *	FIELDS_FIRST        ENTRY-FIELDS before HAZARD-PUBLISH
 *	NO_BOUNDS           the bounds check
 *	NO_RECHECK          ENTRY-RECHECK
 *	NO_RECHECK_BETWEEN  the same between chunks
 *	NO_RECHECK_LAST     the same after the last chunk
 *	EARLY_CLEAR         HAZARD-CLEAR before COPY
 *	NO_CLEAR            HAZARD-CLEAR
 *	NO_TEARDOWN         the end of the connection after a refusal
 *	NO_STORE            ENTRY-INVALIDATE
 *	NO_STORE_FIRST      the drain before ENTRY-INVALIDATE
 *	NO_DRAIN            HAZARD-DRAIN
 *	DRAIN_ONE           all hazards but the first (two queue pairs)
 *	COUNT_FIRST         the hazards are counted before ENTRY-INVALIDATE (GROWS)
 *	NO_TAG              the new tag with each bind
 *	TAG_WRAP            all tags but two: the limit of the promise, a token kept for 4,096 binds of one entry
 *	WORD_FIRST          ENTRY-BIND stores the valid word before the fields
 *	NO_DEATH            the test of the member's lock
 *	LOCK_EARLY          that a process stops before its lock is free
 *	DIRTY_JOIN          hazard := 0 by a new member (REJOIN)
 *	LOSE_TAG            the tag in the invalid word (OWNER_DIES)
 *	PLAIN_PUBLISH       the exchange at HAZARD-PUBLISH (TSO)
 *	PLAIN_INVALIDATE    the exchange at ENTRY-INVALIDATE (TSO)
 *
 * Not modelled:
 *  - Weaker processors, whose loads and stores pass each other freely, such as arm64. P1 and P2 (clean) depend on
 *    HAZARD-CLEAR and HAZARD-DRAIN, which order copies on any processor when they are atomic. P2 (strict) also needs
 *    copies to stay before ENTRY-RECHECK; amd64 guarantees that and arm64 does not.
 *  - Nanoseconds on amd64: the last word of a copy may wait in the store buffer while ENTRY-RECHECK loads a word that
 *    is still valid. Such a transfer succeeds, and its last word becomes visible after the invalid word, but before
 *    the hazard is cleared.
 *  - Processes that break the rules, and a stopped peer with a hazard published: P4 assumes that live executors run.
 *  - The lock: the kernel is assumed to free a member's lock when its last thread has executed its last instruction,
 *    neither sooner (LOCK_EARLY) nor never. So only the member may have the locked file description.
 *  - Asymmetric barriers: Guard.CopyToEntry and Guard.DeliverSend publish with a plain store in a word of their
 *    process. The owner, the same process, runs membarrier between ENTRY-INVALIDATE and HAZARD-DRAIN.
 *  - Several threads on one hazard, since a queue pair serialises its transfers; several tokens in one hazard,
 *    published with one exchange; several entries, access rights, and overflow in the bounds arithmetic, which tests
 *    cover.
 *  - Sizes: three bindings, two transfers of up to two chunks of two bytes. With two executors or a mortal owner, two
 *    bindings and one transfer each. Of two executors at most one dies, and none in the run that also has store
 *    buffers.
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#ifndef NEXEC
#define NEXEC 1
#endif
#ifndef MORTAL
#define MORTAL NEXEC
#endif
#ifndef NXFER
#define NXFER 2
#endif
#ifndef NBIND
#define NBIND 3
#endif

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

/* Every shared location is a cell of M, so that a store buffer can hold a store to any of them. */
#define WORD	0		/* entry: the tag, and VALID */
#define BASE	1		/* entry: first byte of the range; written only while WORD is invalid */
#define LENGTH	2		/* entry: bytes in the range; likewise */
#define HAZARD	3		/* HAZARD+i: hazard of executor i, a token or 0 */
#define DATA	(HAZARD + NEXEC)	/* the owner's bytes, plainly copied */
#define CELLS	(DATA + 8)

byte M[CELLS];

#define VALID	16		/* the valid bit of WORD */

/* Two ranges alternate: A, two chunks long, for bindings 1 and 3; B, one chunk, for binding 2. The two bytes behind B
 * belong to no binding; a transfer with B's base and A's length would reach them. A chunk's two bytes move one by one. */
#define CHUNK		2
#define USESA(g)	((g) % 2 == 1)
#define BASEOF(g)	(USESA(g) -> 0 : 4)
#define LENGTHOF(g)	(USESA(g) -> 2 * CHUNK : CHUNK)

/* The tag in the token of binding g. Each binding has a new one: the real tag returns after 4,096 binds, which is far
 * beyond NBIND. */
#if defined(NO_TAG)
#define TAG(g)	1
#elif defined(TAG_WRAP)
#define TAG(g)	(1 + ((g) - 1) % 2)
#else
#define TAG(g)	(g)
#endif

/* Data bytes: 0 at first, 1 from any executor, g+1 from the owner once it has invalidated binding g, NBIND+2 from the
 * survivor. So a byte greater than g is one that the owner wrote after the Invalidate of g. */
#define PEERS		1
#define OWNED(g)	((g) + 1)
#define INHERITED	(NBIND + 2)

/* ---- Members --------------------------------------------------------------------------------------------------- */

bool running[NEXEC];		/* the executor's process executes */
bool lock[NEXEC];		/* it has its lock, which is all that other processes can see of it */
#ifdef OWNER_DIES
bool ownerrunning = true, ownerlock = true;
#endif

/* How many hazards there are. */
#ifdef GROWS
byte count;
#else
#define limit	NEXEC
#endif

/* ---- Claims ----------------------------------------------------------------------------------------------------- */

/* The progress of the bindings. Only the claims use it. It never decreases. */
byte epoch;
#define BOUND(g)	(3 * (g) - 2)	/* the valid word of binding g is in memory */
#define STORED(g)	(3 * (g) - 1)	/* the invalid word is in memory */
#define DONE(g)		(3 * (g))	/* the Invalidate has completed */
#define REACHED(e)	if :: epoch < (e) -> epoch = (e) :: else fi
#define CURRENT		((epoch + 2) / 3)

bool invalidating;		/* an Invalidate has begun and has not completed */

/* A claim's name is a variable with its truth value for one moment, so that the checker's message has the name. */
hidden byte P1_touch, P1_kept, P2_clean, P2_strict, P3_range, P4_chunk;
#define CLAIM(name, what)	name = (what); assert(name)

/* P4_ends. An Invalidate that has begun completes. (Under weak fairness.) */
ltl P4_ends { [] (invalidating -> <> !invalidating) }

/* When the byte at cell a is read or written in the name of binding g:
 * P3_range. It is a byte of binding g's range, and binding g has been made.
 * P1_touch. If it is a byte of g's range, the Invalidate of g has not completed. */
#define INRANGE(g, a)	((a) >= DATA + BASEOF(g) && (a) < DATA + BASEOF(g) + LENGTHOF(g))
#define TOUCH(g, a) \
	CLAIM(P3_range, INRANGE(g, a) && epoch >= BOUND(g)); CLAIM(P1_touch, !INRANGE(g, a) || epoch < DONE(g))

#ifdef REACH
hidden byte S1, S2, S3, S4, S5, S6, S7, S8;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- Stores and loads ------------------------------------------------------------------------------------------ */

#define OWNER	NEXEC		/* the owner's number among the storing processes; executors have 0 to NEXEC-1 */

/* A store of a process reaches memory. For the claims, it carries the binding g for which it was made. */
inline perform(who, a, v, g) {
	if
	:: (a) >= DATA && (who) != OWNER -> TOUCH(g, a)
	:: (a) == WORD && (v) >= VALID -> REACHED(BOUND(g))
	:: (a) == WORD && (v) < VALID -> REACHED(STORED(g))
	:: else
	fi;
	M[a] = v
}

#ifdef TSO
#define BUFFERED	3
chan buffer[NEXEC + 1] = [BUFFERED] of { byte, byte, byte };	/* cell, value, binding */
#define STORE(who, a, v, g)	buffer[who]!(a), (v), (g)
#define EXCHANGE(who, a, v, g)	atomic { empty(buffer[who]); perform(who, a, v, g) }
#define FENCE(who)		empty(buffer[who])
#else
#define STORE(who, a, v, g)	atomic { perform(who, a, v, g) }
#define EXCHANGE(who, a, v, g)	atomic { perform(who, a, v, g) }
#define FENCE(who)		skip
#endif
/* A load reads M. It ignores its own process's buffer, because no process loads a cell to which it has a store in its
 * buffer. A transfer begins with an exchange, and the owner fences before it inspects its bytes. (A mutation
 * may break that; it then reads an older value, and is wrong enough without.) */

#ifdef TSO
/* Takes stores to memory: any process's, at any time, oldest first. */
active proctype Buffers() {
	byte a, v, g;
endEmpty:
	do
	:: atomic { buffer[0]?a, v, g -> perform(0, a, v, g); a = 0; v = 0; g = 0 }
	:: atomic { buffer[1]?a, v, g -> perform(1, a, v, g); a = 0; v = 0; g = 0 }
#if NEXEC > 1
	:: atomic { buffer[2]?a, v, g -> perform(2, a, v, g); a = 0; v = 0; g = 0 }
#endif
	od
}
#endif

/* ---- The executor ---------------------------------------------------------------------------------------------- */

#ifdef PLAIN_PUBLISH
#define PUBLISH	STORE(me, HAZARD + me, TAG(g), g)
#else
#define PUBLISH	EXCHANGE(me, HAZARD + me, TAG(g), g)
#endif
#define CLEAR	STORE(me, HAZARD + me, 0, g)

/* NOTE runs when a byte of chunk c moves, for the claims. It adds c to `after` once the invalid word is in memory. It sets
 * `late` once the invalidation has completed.
 * P4_chunk. A transfer moves at most one chunk after the invalid word is in memory, so the owner waits for no more. */
#define NOTE \
	if :: epoch >= STORED(g) -> after = after | (1 << c); CLAIM(P4_chunk, (after & (after - 1)) == 0) :: else fi; \
	if :: epoch >= DONE(g) -> late = true :: else fi

/* A Write stores one byte; a Read loads one, and remembers the greatest value it has seen. */
inline copybyte(a) {
	if
#ifdef TSO
	:: write -> atomic { buffer[me]!(a), PEERS, g; NOTE }
#else
	:: write -> d_step { NOTE; perform(me, a, PEERS, g) }
#endif
	:: !write -> d_step { NOTE; TOUCH(g, a); if :: M[a] > greatest -> greatest = M[a] :: else fi }
	fi
}

/* A transfer of n chunks with the token of binding g. A refusal, at whatever step, sets failed. */
inline transfer() {
#ifdef CHECK_FIRST
	word = M[WORD];
#endif
#ifdef FIELDS_FIRST
	base = M[BASE];
	length = M[LENGTH];
#endif
#ifdef PEEK
	word = M[WORD];
	if
	:: word != TAG(g) + VALID -> failed = true; goto refused
	:: else
	fi;
#endif
#ifndef NO_PUBLISH
	PUBLISH;						/* HAZARD-PUBLISH */
#endif
#if defined(NO_CHECK)
	word = TAG(g) + VALID;
#elif !defined(CHECK_FIRST)
	word = M[WORD];						/* ENTRY-CHECK */
#endif
	if
	:: word != TAG(g) + VALID -> failed = true
	:: else ->
#ifndef FIELDS_FIRST
		base = M[BASE];					/* ENTRY-FIELDS */
		length = M[LENGTH];
#endif
#ifdef NO_BOUNDS
		length = n * CHUNK;
#endif
#ifdef EARLY_CLEAR
		CLEAR;
#endif
		if
		:: n * CHUNK > length -> failed = true
		:: else ->
			do
			:: c < n ->
				copybyte(DATA + base + c * CHUNK);	/* COPY */
				copybyte(DATA + base + c * CHUNK + 1);
#if defined(NO_RECHECK)
				skip;
#elif defined(NO_RECHECK_BETWEEN)
				if :: c == n - 1 -> word = M[WORD] :: else fi;
#elif defined(NO_RECHECK_LAST)
				if :: c < n - 1 -> word = M[WORD] :: else fi;
#else
				word = M[WORD];			/* ENTRY-RECHECK */
#endif
				if
				:: word != TAG(g) + VALID -> failed = true; break
				:: else -> c++
				fi
			:: else -> break
			od
		fi
	fi;
#ifdef NO_CLEAR
	skip;
#else
	CLEAR;							/* HAZARD-CLEAR */
#endif
#ifdef PEEK
refused:
	skip;
#endif
	d_step {
		SEEN(S3, failed && length >= n * CHUNK);
		if
		:: !failed ->
			/* P2_clean. A transfer reported as successful moved no byte after the Invalidate had completed, and a
			 * successful Read holds no byte that the owner wrote after that.
			 * P2_strict. It even moved no byte after the invalid word was in memory. */
			CLAIM(P2_clean, !late && greatest < OWNED(g));
			CLAIM(P2_strict, after == 0);
			SEEN(S1, g == NBIND && write);
			SEEN(S2, g == 1 && !write && n == 2 && epoch >= DONE(1));
			SEEN(S8, rejoined)
		:: else
		fi;
		word = 0; base = 0; length = 0; c = 0; after = 0; late = false; greatest = 0
	}
}

/* The token may be that of any binding: the current one, a stale one, or one that is yet to be made, guessed. (Where
 * tags repeat, there is no telling a guess from the token of an earlier binding, and no executor guesses.) After a transfer
 * that fails, the connection is gone and the executor does nothing more through it. */
#if defined(NO_TAG) || defined(TAG_WRAP)
#define TOLD(g)	epoch >= BOUND(g)
#else
#define TOLD(g)	true
#endif

proctype Executor(byte me) {
	byte g, n, c, word, base, length, after, greatest, left = NXFER;
	bool write, late, failed, rejoined;
#ifdef GROWS
	d_step { if :: count < me + 1 -> count = me + 1 :: else fi };	/* Domain.AddHazard */
#endif
again:
	{
		do
		:: left > 0 && !failed ->
			if
			:: TOLD(1) -> g = 1
			:: TOLD(2) -> g = 2
#if NBIND > 2
			:: TOLD(3) -> g = 3
#endif
			fi;
#ifdef ONE_SIZE
			n = LENGTHOF(g) / CHUNK;
#else
			if :: n = 1 :: n = 2 fi;
#endif
			if :: write = true :: write = false fi;
			left--;
			transfer();
#ifdef NO_TEARDOWN
			d_step { if :: failed -> left++; failed = false :: else fi };
#endif
			d_step { g = 0; n = 0; write = false }
		:: else -> break
		od;
		goto endExecutor
	} unless { !running[me] };
	d_step {
		SEEN(S5, M[HAZARD + me] != 0 && c > 0 && M[WORD] < VALID);
		g = 0; n = 0; c = 0; word = 0; base = 0; length = 0; after = 0; greatest = 0; left = 0;
		write = false; late = false; failed = false
	};
#ifdef REJOIN
endDead:
	if
	:: !lock[me] ->
		lock[me] = true;				/* Arena.Join: the lock, */
#ifndef DIRTY_JOIN
		M[HAZARD + me] = 0;				/* then the hazard, */
#endif
		atomic { running[me] = true; rejoined = true };	/* then work, or none yet */
		if :: left = 1 :: left = 0 fi;
		goto again
	:: skip
	fi;
#endif
endExecutor:
	skip
}

/* An executor's process may die between any two of its steps. It executes nothing more, its stores reach
 * memory, and then the kernel releases its lock. */
proctype Death(byte i) {
	if
#ifdef LOCK_EARLY
	:: lock[i] = false; running[i] = false
#else
	:: running[i] = false; FENCE(i); lock[i] = false
#endif
	:: skip
	fi
}

/* ---- The owner ------------------------------------------------------------------------------------------------- */

#ifdef PLAIN_INVALIDATE
#define INVALIDATE(g, v)	STORE(OWNER, WORD, v, g)
#else
#define INVALIDATE(g, v)	EXCHANGE(OWNER, WORD, v, g)
#endif

#ifdef LOSE_TAG
#define INVALID(g)	0
#else
#define INVALID(g)	TAG(g)
#endif

inline bind(g) {
#ifdef WORD_FIRST
	STORE(OWNER, WORD, TAG(g) + VALID, g);
#endif
	STORE(OWNER, BASE, BASEOF(g), g);			/* ENTRY-BIND */
	STORE(OWNER, LENGTH, LENGTHOF(g), g);
#ifndef WORD_FIRST
	STORE(OWNER, WORD, TAG(g) + VALID, g)
#endif
}

/* Waits until no hazard names the token, except for hazards whose member's lock is free. */
inline drain(token) {
#if defined(GROWS) && !defined(COUNT_FIRST)
	limit = count;						/* Domain.drained */
#endif
	i = 0;
	do
	:: i < limit ->
		do
		:: M[HAZARD + i] != token -> break		/* HAZARD-DRAIN */
#ifndef NO_DEATH
		:: M[HAZARD + i] == token && !lock[i] -> d_step { SEEN(S6, true) }; break
#endif
		:: else -> d_step { SEEN(S4, true) }		/* check again */
		od;
#ifdef DRAIN_ONE
		break;
#endif
		i++
	:: else -> break
	od;
	i = 0
}

inline invalidate(g) {
	invalidating = true;
#ifdef COUNT_FIRST
	limit = count;
#endif
#ifdef NO_STORE_FIRST
	drain(TAG(g));
#endif
#ifndef NO_STORE
	INVALIDATE(g, INVALID(g));				/* ENTRY-INVALIDATE */
#endif
#if !defined(NO_STORE_FIRST) && !defined(NO_DRAIN)
	drain(TAG(g));
#endif
	d_step { invalidating = false; REACHED(DONE(g)) }	/* the Invalidate completes */
}

/* Writes v into the bytes [from, to). */
inline fill(from, to, v, g) {
	i = from;
	do
	:: atomic { i < to -> STORE(OWNER, DATA + i, v, g); i++ }
	:: else -> break
	od;
	i = 0
}

/* P1_kept. Memory that the owner has back has the bytes that the owner wrote. */
inline inspect(from, to, v) {
	FENCE(OWNER);
	d_step {
		i = from;
		do
		:: i < to -> CLAIM(P1_kept, M[DATA + i] == v); i++
		:: else -> break
		od;
		i = 0
	}
}

active proctype Owner() {
	byte i;
#ifdef GROWS
	byte limit;
#endif
	atomic {
		do
		:: i < NEXEC ->
			lock[i] = true; running[i] = true; run Executor(i);
			if :: i < MORTAL -> run Death(i) :: else fi;
			i++
		:: else -> break
		od;
		i = 0
	};
#ifdef OWNER_DIES
	{
#endif
	bind(1);
	invalidate(1);
	fill(0, 4, OWNED(1), 1);
	bind(2);
	invalidate(2);
	inspect(0, 4, OWNED(1));
	fill(4, 6, OWNED(2), 2);
#if NBIND > 2
	bind(3);
	invalidate(3);
	inspect(4, 6, OWNED(2));
	fill(0, 4, OWNED(3), 3);
	inspect(0, 4, OWNED(3));
#endif
	inspect(4, 6, OWNED(2))
#ifdef OWNER_DIES
	} unless { !ownerrunning }
#endif
}

#ifdef OWNER_DIES
active proctype OwnerDeath() {
	if
	:: ownerrunning = false; FENCE(OWNER); ownerlock = false
	:: skip
	fi
}

/* A member that finds the owner's lock free invalidates in its place. All that it knows of the binding is in the entry:
 * the tag is there, valid or not, unless there never was a binding. */
active proctype Survivor() {
	byte i, tag;
#ifdef GROWS
	byte limit;
#endif
endWaiting:
	!ownerlock;
	invalidating = true;
	tag = M[WORD] & (VALID - 1);
	d_step { SEEN(S7, tag != 0 && M[WORD] < VALID && epoch == STORED(CURRENT)) };
	INVALIDATE(CURRENT, tag);				/* ENTRY-INVALIDATE */
	if
	:: tag != 0 -> drain(tag)				/* HAZARD-DRAIN */
	:: else
	fi;
	d_step { invalidating = false; REACHED(DONE(CURRENT)); tag = 0 };
	fill(0, 8, INHERITED, CURRENT);
	inspect(0, 8, INHERITED)
}
#endif
