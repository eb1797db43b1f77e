/*
 * The reclaim after a death, for Spin: mark, count, acknowledge, reap (shm/liveness.go, shm/member.go).
 *
 * A member owns a record, a lock on it that the kernel releases with its death, and memory. Survivors use that memory
 * until they have released the dead member. Then one of them gives the memory and the record back, and a new member may
 * take both. The memory has the number of the record as its owner, so the next owner's looks the same.
 *
 *	mark          the lock is free, or the member leaves: state := dead
 *	count         epoch := ++deaths, unless it is the number of a death already; first by the process that marked
 *	acknowledge   noted := deaths; walked := slots; if that covers the record and the state is dead, release it; seen := noted
 *	reap          epoch <= seen of all live members: take the lock; still dead? give the memory back; state := free
 *	join          take the lock; free? epoch := not counted, of the next incarnation; slots := at least this one; state := live
 *	connect       note that the memory is in use, so that the release ends it; then check that the member lives
 *
 * The member dies, or leaves, at any step. One more thread of the first survivor connects with it and uses its memory.
 *
 * The proof in short: a survivor that notes the number of a death has loaded it before it read the records. So it has
 * released every member whose death has that number or a lower one. The process that gives the memory back holds the
 * lock of the dead member. So no member executes under that record, and no other process gives the memory back.
 *
 * Sizes, to be given with -D: LIVES of the member, one after another (1).
 *
 * Variants, in which all claims hold:
 *	MORTAL       the second survivor may die at any step, also while it holds the lock
 *	ALONE        there is one survivor
 *	EARLIER      another member has died before
 *	FALSE_MARK   the record of a live member is marked dead once, by a process that writes into memory of others
 *
 * Mutations, with the step that each removes or moves. check.sh lists the claims that it must break.
 *	COUNT_FIRST      that the mark comes before the count
 *	NO_WAIT          that the reaper waits for all live members
 *	CONNECT_EARLY    the check of the state after the connection is noted
 *	SEEN_LATE        that the number is loaded before the records are read (two lives)
 *	SLOTS_EARLY      that the number of records in use is loaded after the number of deaths (EARLIER)
 *	NO_SECOND_CHECK  the check of the state under the lock (two lives)
 *	STALE_EPOCH      that a new owner's record has no number (two lives)
 *	NO_LOCK          the lock that the reaper takes (FALSE_MARK)
 *	NO_COUNT         that any member counts an uncounted death (MORTAL)
 *	KEEP_DEAD        that a dead survivor is not waited for (MORTAL)
 *
 * Not modelled: single chunks; a hole punch that fails (a later round tries again); a process that writes false values
 * of deathsSeen, deathEpoch or deaths.
 *
 * REACH asserts that certain situations never occur. Each of these
 * assertions must fail; else the model could pass by doing nothing.
 */

#ifndef LIVES
#define LIVES	1
#endif

#define FREE	0
#define LIVE	1
#define DEAD	2
#define UNCOUNTED(i)	(100 + (i))	/* has the incarnation */

byte state = FREE, inc;		/* the record: one word, in the code too */
byte epoch;			/* number of the death */
byte lock;			/* on the record: 0 free, 1 the member, 2 and 3: a survivor that reaps */
byte chunk;			/* the memory: incarnation of its owner, 0 = free */
#ifdef EARLIER
byte deaths = 1;
#else
byte deaths;
#endif
bool covered;			/* by the number of records that have been in use */
byte seen[2];			/* of the survivors */
byte using;			/* incarnation whose memory the first survivor uses, 0 = none */
bool runs = true;		/* the second survivor's process executes */
bool counts = true;		/* its record says that it lives */
bool over;			/* the last life of the member has ended */

/* R1_touch. The first survivor touches memory only of the incarnation that it has connected with.
 * R2_own.   A member's memory is not given back while the member executes.
 * R3_back.  When no process can take a further step, the dead member's record and memory have been given back. */
hidden byte R1_touch, R2_own, R3_back;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef REACH
hidden byte S1, S2, S3, S4, S5;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

#define COUNTED(e)	((e) != 0 && (e) <= deaths)

/* Arena.numberDeath. first says whether the caller has marked the record. */
inline count(first) {
	e = epoch;
	if
#ifdef NO_COUNT
	:: state == DEAD && first ->
#else
	:: state == DEAD && (first || !COUNTED(e)) ->
#endif
		d_step { deaths++; n = deaths };
		d_step { if :: epoch == e -> epoch = n :: else -> SEEN(S1, true) fi }
	:: else
	fi;
	d_step { e = 0; n = 0 }
}

/* Arena.markDead, of incarnation i. */
inline mark(i) {
#ifdef COUNT_FIRST
	d_step { deaths++; n = deaths };
	d_step { if :: epoch == UNCOUNTED(i) -> epoch = n :: else fi };
	d_step { if :: state == LIVE && inc == i -> state = DEAD :: else fi };
	n = 0
#else
	d_step { if :: state == LIVE && inc == i -> state = DEAD; marked = true :: else fi };
	if :: marked -> count(true) :: else fi;
	marked = false
#endif
}

/* ---- The member ------------------------------------------------------------------------------------------------ */

active proctype Member() {
	byte lives, e, n;
	bool marked;
	do
	:: lives < LIVES ->
		lives++;
		d_step { lock == 0 && state == FREE -> lock = 1 };
#ifndef STALE_EPOCH
		epoch = UNCOUNTED(inc + 1);
#endif
		if
		:: covered = true;
			d_step { inc++; state = LIVE };
			d_step { chunk == 0 -> chunk = inc };
			if
			:: mark(inc)			/* it leaves */
			:: skip				/* it dies */
			fi;
			d_step { CLAIM(R2_own, chunk == inc); lock = 0 }
		:: lock = 0				/* it dies while it takes the record */
		fi
	:: else -> break
	od;
	over = true
}

#ifdef FALSE_MARK
active proctype Corruptor() {
	if :: d_step { state == LIVE -> state = DEAD } :: over fi
}
#endif

/* ---- The survivors --------------------------------------------------------------------------------------------- */

/* A thread of the first survivor connects with the member, and uses its memory. */
active proctype User() {
	byte i;
	bool gone;
	do
	:: d_step { state == LIVE && chunk == inc && i != inc -> i = inc };
#ifdef CONNECT_EARLY
		gone = (state != LIVE || inc != i);
#endif
		if :: !gone -> using = i :: else fi;
#ifndef CONNECT_EARLY
		d_step { gone = (state != LIVE || inc != i); SEEN(S2, gone) };
		if :: gone -> using = 0 :: else fi;
#endif
		do
		:: d_step { using == i -> CLAIM(R1_touch, chunk == i) }
		:: using != i -> break
		:: break
		od;
		gone = false
	:: over -> break
	od
}

/* The number up to which all live members have acknowledged. */
#ifdef NO_WAIT
#define ACKNOWLEDGED	deaths
#else
#define ACKNOWLEDGED	(counts && seen[1] < seen[0] -> seen[1] : seen[0])
#endif

#ifdef NO_LOCK
#define UNLOCKED	true
#else
#define UNLOCKED	lock == 0
#endif

/* A survivor takes the steps that are due, in any order. */
proctype Survivor(byte me) {
	byte e, n, i, noted;
	bool marked, walks;
	{
		do
#ifndef KEEP_DEAD
		:: d_step { !runs && counts -> counts = false }
#endif
		:: d_step { lock == 0 && state == LIVE -> i = inc };	/* checkAlive */
			mark(i);
			i = 0
#ifndef NO_COUNT
		:: state == DEAD && !COUNTED(epoch) -> count(false)
#endif
		:: deaths != seen[me] ->				/* acknowledge */
#ifdef SLOTS_EARLY
			walks = covered;
#endif
#ifndef SEEN_LATE
			noted = deaths;
#endif
#ifndef SLOTS_EARLY
			walks = covered;
#endif
			d_step { if :: walks && state == DEAD && me == 0 && using == inc -> using = 0 :: else fi };
#ifdef SEEN_LATE
			noted = deaths;
#endif
			d_step { seen[me] = noted; noted = 0; walks = false }
		:: d_step { state == DEAD && COUNTED(epoch) && epoch <= ACKNOWLEDGED && UNLOCKED -> i = inc };	/* reapDead */
			e = epoch;
			if
#ifdef NO_LOCK
			:: COUNTED(e) && e <= ACKNOWLEDGED ->
#else
			:: d_step { COUNTED(e) && e <= ACKNOWLEDGED && UNLOCKED -> lock = 2 + me };
#endif
				if
#ifdef NO_SECOND_CHECK
				:: true ->
#else
				:: state == DEAD && inc == i ->
#endif
					d_step { chunk = 0; SEEN(S3, me == 1) };
					d_step { if :: state == DEAD && inc == i -> state = FREE :: else fi }
				:: else -> SEEN(S4, true)
				fi;
#ifndef NO_LOCK
				lock = 0
#endif
			:: else
			fi;
			d_step { e = 0; i = 0 }
		:: over && state == FREE -> break
		od
	} unless { me == 1 && !runs }
}

/* The second survivor may die; the kernel releases its lock. */
#ifdef MORTAL
active proctype Death() {
	if
	:: d_step { runs = false; SEEN(S5, lock == 3); if :: lock == 3 -> lock = 0 :: else fi }
	:: skip
	fi
}
#endif

/* The state when no process can take a step. */
active proctype Quiet() {
endNever:
	timeout -> CLAIM(R3_back, over && state == FREE && chunk == 0)
}

init {
	atomic {
		run Survivor(0);
#ifdef ALONE
		counts = false
#else
		run Survivor(1)
#endif
	}
}
