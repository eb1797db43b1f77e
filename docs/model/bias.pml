/*
 * The asymmetric mutex, for Spin.
 *
 * internal/asym.BiasedMutex costs the goroutine that locks it all the time, its owner, plain loads and stores only. Whoever
 * else locks it takes the ownership away first, and pays for both with membarrier(2), which is Heavy. This is Enter of
 * stack_unsafe.go and lock, tryLock, dispossess, promote and Unlock of mutex.go, a load or a store a step; what the
 * mutex promises is stated as assertions.
 *
 *	owner (enter, Unlock)                        anybody else (lock, tryLock), with mu held
 *	---------------------                        ------------------------------------------
 *	owner is me, and I do not hold it already?   owner := nobody
 *	inside := 1                                  Heavy
 *	owner is me still?  no: inside := 0, go      the latest owner is inside: wait; tryLock: give up
 *	the critical section                         the critical section
 *	inside := 0                                  become the owner, or not; mu is unlocked
 *
 * It is the store-then-load handshake again: the owner stores inside and loads owner, the other one stores owner and
 * loads inside. The owner's store may wait in its store buffer while it loads; Heavy empties that in between.
 *
 * Every process stores through a first-in-first-out store buffer, as on amd64, and loads from it first. Operations of
 * sync.Mutex and of package atomic empty the buffer of who makes them. Heavy passes all processes, one after the other:
 * each empties its buffer at some moment within the call, not all at the same one.
 *
 * A process stands for a goroutine. An owner record has its number: the code makes a new record when a goroutine
 * becomes the owner that was not the latest one, but no goroutine still uses its last when it gets another. How often
 * one locks in a row before it becomes the owner is left open here: any unlock may make it the owner.
 *
 * Sizes, to be given with -D: N processes (2), ROUNDS locks of each (2), BUFFERED stores in a buffer (5).
 *
 * Variants, correct: AGAIN, a holder may try to lock once more, which has to fail; MOVES, an owner may find at any time
 * that it is not known any more, because its stack has moved, and then takes the ownership from itself.
 *
 * Mutations:
 *	NO_HEAVY NO_SECOND_LOOK SHARED_FLAG NO_WAIT FORGET NO_STEP_BACK HEAVY_FIRST OUT_FIRST PLAIN_ARM
 *	LOOK_FIRST NO_LOCK; with AGAIN: NO_SELF
 *
 * README.md says what each of them means. WITNESS asserts that certain situations never come up, and each of these
 * assertions has to fail.
 */

#ifndef N
#define N 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef BUFFERED
#define BUFFERED 5
#endif

/* ---- Shared memory --------------------------------------------------------------------------------------------- */

#define OWNER	0		/* 0 = nobody, else the process's number plus one */
#define LATEST	1		/* likewise: who is the owner, or was it last */
#define BYOWNER	2
#define DATA	3		/* what the mutex guards: how often something was pushed */
#define ARMED	4		/* the sleeper's bell */
#ifdef SHARED_FLAG
#define INSIDE(p)	5
#define CELLS	6
#else
#define INSIDE(p)	(5 + (p))
#define CELLS	(5 + N)
#endif

byte M[CELLS];
bool mu;			/* the sync.Mutex is locked */

typedef Buffer {
	byte count;
	byte cell[BUFFERED];
	byte value[BUFFERED]
}
Buffer buffer[N];

#define EMPTY(p)	(buffer[p].count == 0)

inline store(a, v) {
	d_step {
		buffer[me].count < BUFFERED ->
		buffer[me].cell[buffer[me].count] = a;
		buffer[me].value[buffer[me].count] = v;
		buffer[me].count++
	}
}

inline load(x, a) {
	d_step {
		x = M[a];
		k = 0;
		do
		:: k < buffer[me].count ->
			if :: buffer[me].cell[k] == a -> x = buffer[me].value[k] :: else fi;
			k++
		:: else -> break
		od;
		k = 0
	}
}

inline exchange(a, v) { d_step { EMPTY(me) -> M[a] = v } }

/* Takes the oldest store of p's buffer to memory. */
inline flush(p) {
	d_step {
		!EMPTY(p) ->
		M[buffer[p].cell[0]] = buffer[p].value[0];
		buffer[p].count--;
		k = 0;
		do
		:: k < buffer[p].count ->
			buffer[p].cell[k] = buffer[p].cell[k + 1];
			buffer[p].value[k] = buffer[p].value[k + 1];
			k++
		:: else -> break
		od;
		buffer[p].cell[k] = 0;
		buffer[p].value[k] = 0;
		k = 0
	}
}

active proctype Buffers() {
	byte k;
endEmpty:
	do
	:: flush(0)
	:: flush(1)
#if N > 2
	:: flush(2)
#endif
	od
}

/* ---- What is claimed ------------------------------------------------------------------------------------------- */

/* Only the claims look at these. */
byte holders;			/* who are in the critical section */
byte pushes;			/* stores to DATA so far, in memory or not */
byte unrung;			/* the newest push whose maker did not see the sleeper's bell armed */
bool looked;			/* the sleeper has looked, */
byte seen;			/* and this is the newest push that it saw */

/* A claim's name is a variable that holds its truth for one moment, so that the checker's message gives the name. */
hidden byte O1_alone, O2_seen, O3_woken;
#define CLAIM(name, what)	name = (what); assert(name)

#ifdef WITNESS
hidden byte W1, W2, W3, W4, W5, W6, W7, W8;
#define SEEN(name, what)	name = !(what); assert(name)
#else
#define SEEN(name, what)	skip
#endif

/* ---- The mutex ------------------------------------------------------------------------------------------------- */

#ifdef NO_SELF
#define HELD	0
#else
#define HELD	x
#endif

/* Sets entered if the process locks the mutex as its owner. */
inline enter() {
	entered = false;
	load(x, OWNER);
	if
	:: x != me + 1
#ifdef MOVES
	:: true
#endif
	:: x == me + 1 ->
		load(x, BYOWNER);
		if
		:: HELD
		:: else ->
			store(INSIDE(me), 1);
#ifdef NO_SECOND_LOOK
			x = me + 1;
#else
			load(x, OWNER);
#endif
			if
			:: x == me + 1 ->
				store(BYOWNER, 1);
				entered = true
			:: else ->
				d_step { SEEN(W3, true); SEEN(W5, M[BYOWNER] && M[OWNER] != 0) };
#ifndef NO_STEP_BACK
				store(INSIDE(me), 0)
#endif
			fi
		fi
	fi;
	x = 0
}

inline heavy() {
	i = 0;
	do
	:: i < N -> atomic { EMPTY(i) -> i++ }
	:: else -> break
	od;
	i = 0
}

/* Sets took if there was an owner, which only FORGET asks about. */
inline dispossess() {
	load(x, OWNER);
	took = x != 0;
	if
	:: x != 0 ->
#ifdef HEAVY_FIRST
		heavy();
		exchange(OWNER, 0)
#else
		exchange(OWNER, 0);
#ifndef NO_HEAVY
		heavy()
#endif
#endif
	:: else
	fi;
	x = 0
}

#ifdef FORGET
#define ASKED	(took && x != 0)
#else
#define ASKED	(x != 0)
#endif

/* Waits as long as the latest owner is inside. The buffer of who asks is empty, for it has mu. */
inline awaitowner() {
	load(x, LATEST);
	d_step { SEEN(W2, x != 0 && M[INSIDE(x - 1)]) };
#ifdef NO_WAIT
	skip;
#else
	!ASKED || !M[INSIDE(x - 1)];
#endif
	x = 0
}

inline lock() {
	enter();
	if
	:: entered
	:: else ->
		d_step { !mu && EMPTY(me) -> mu = true };
		dispossess();
		awaitowner();
		entered = true
	fi
}

/* Sets entered if it has locked the mutex. */
inline trylock() {
	enter();
	if
	:: entered
	:: else ->
		d_step { EMPTY(me) -> entered = !mu; mu = true };
		if
		:: entered ->
			dispossess();
			load(x, LATEST);
			if
#ifndef NO_WAIT
			:: ASKED && M[INSIDE(x - 1)] ->
				d_step { EMPTY(me) -> mu = false; SEEN(W4, true) };
				entered = false
#endif
			:: !ASKED || !M[INSIDE(x - 1)]
#ifdef NO_WAIT
			:: else
#endif
			fi;
			x = 0
		:: else
		fi
	fi
}

inline unlock() {
	load(x, BYOWNER);
	if
	:: x ->
		store(BYOWNER, 0);
		load(x, LATEST);
		store(INSIDE(x - 1), 0)
	:: else ->
		if
		:: store(LATEST, me + 1); exchange(OWNER, me + 1)	/* promote */
		:: skip
		fi;
		d_step { EMPTY(me) -> mu = false }
	fi;
	x = 0
}

/* ---- Who uses it ----------------------------------------------------------------------------------------------- */

#define SLEEPER	(N - 1)		/* goes to sleep in its last round, and does in the others what everybody does */

inline begin() { d_step { holders++; SEEN(W1, M[OWNER] == me + 1); CLAIM(O1_alone, holders == 1) } }

/* A critical section that pushes something, and the unlock. In the middle the holder may try to lock once more, which
 * must not succeed. */
inline push() {
	begin();
	load(x, DATA);
	d_step { CLAIM(O2_seen, x == pushes); mine = x + 1; pushes = mine; x = 0 };
#ifdef AGAIN
	if
	:: trylock(); d_step { CLAIM(O1_alone, !entered); entered = true }
	:: skip
	fi;
#endif
#ifndef OUT_FIRST
	store(DATA, mine);
#endif
	d_step { holders-- };
	unlock();
#ifdef OUT_FIRST
	store(DATA, mine);
#endif
	skip
}

/* After the unlock: whoever sleeps is woken. */
inline ring() {
	d_step {
		if
		:: M[ARMED] -> SEEN(W6, looked && seen < mine)
		:: else ->
			SEEN(W7, EMPTY(me) == 0);
			unrung = (unrung < mine -> mine : unrung);
			CLAIM(O3_woken, !looked || seen >= mine)
		fi;
		mine = 0
	}
}

/* The sleeper arms its bell, and then looks for the last time. */
inline sleep() {
#ifdef NO_LOCK
	exchange(ARMED, 1);
	load(x, DATA);
#else
#if defined(LOOK_FIRST)
	skip;
#elif defined(PLAIN_ARM)
	store(ARMED, 1);
#else
	exchange(ARMED, 1);
#endif
	lock();
	begin();
	load(x, DATA);
#endif
	d_step { looked = true; seen = x; x = 0; CLAIM(O3_woken, seen >= unrung) };
#ifndef NO_LOCK
	d_step { SEEN(W8, M[OWNER] == me + 1); holders-- };
	unlock();
#endif
#ifdef LOOK_FIRST
	exchange(ARMED, 1);
#endif
	skip
}

proctype Process(byte me) {
	byte x, i, k, mine, left = ROUNDS;
	bool entered, took;
	do
	:: left > 1 || left == 1 && me != SLEEPER ->
		left--;
		if :: lock() :: trylock() fi;
		if
		:: entered -> push(); ring()
		:: else
		fi
	:: else -> break
	od;
	if
	:: me == SLEEPER -> sleep()
	:: else
	fi
}

init {
	byte p;
	atomic {
		do
		:: p < N -> run Process(p); p++
		:: else -> break
		od
	}
}
