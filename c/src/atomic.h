/* Memory orders that the handshakes of docs/shared-memory.md need, each with one name. */
#ifndef SND_ATOMIC_H
#define SND_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define snd_likely(x) __builtin_expect(!!(x), 1)
#define snd_unlikely(x) __builtin_expect(!!(x), 0)

/* A function of a fast path, which each of its callers contains. */
#define SND_FAST static inline __attribute__((always_inline))

typedef _Atomic uint64_t snd_word;
typedef _Atomic uint32_t snd_half;

static inline uint64_t snd_relaxed(const snd_word *w) { return atomic_load_explicit(w, memory_order_relaxed); }
static inline uint64_t snd_acquire(const snd_word *w) { return atomic_load_explicit(w, memory_order_acquire); }
static inline uint32_t snd_relaxed32(const snd_half *w) { return atomic_load_explicit(w, memory_order_relaxed); }
static inline uint32_t snd_acquire32(const snd_half *w) { return atomic_load_explicit(w, memory_order_acquire); }

/* snd_load loads a word of a handshake in which each side stores and then loads. */
static inline uint64_t snd_load(const snd_word *w) { return atomic_load_explicit(w, memory_order_seq_cst); }
static inline uint32_t snd_load32(const snd_half *w) { return atomic_load_explicit(w, memory_order_seq_cst); }

static inline void snd_set(snd_word *w, uint64_t v) { atomic_store_explicit(w, v, memory_order_relaxed); }
static inline void snd_set32(snd_half *w, uint32_t v) { atomic_store_explicit(w, v, memory_order_relaxed); }
static inline void snd_release(snd_word *w, uint64_t v) { atomic_store_explicit(w, v, memory_order_release); }
static inline void snd_release32(snd_half *w, uint32_t v) { atomic_store_explicit(w, v, memory_order_release); }

/* snd_store_full stores a word with release order, and keeps every later load behind the store. On
 * amd64 one exchange does both. On other processors an exchange would let a later load pass the store
 * part, so a full fence follows. */
static inline void snd_store_full(snd_word *w, uint64_t v)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	(void)atomic_exchange_explicit(w, v, memory_order_seq_cst);
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_store_explicit(w, v, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline void snd_store_full32(snd_half *w, uint32_t v)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	(void)atomic_exchange_explicit(w, v, memory_order_seq_cst);
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_store_explicit(w, v, memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* snd_fence_after_copy keeps the accesses of a copy before the load that checks it. amd64 needs no
 * instruction for that, see docs/model. */
static inline void snd_fence_after_copy(void)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

static inline void snd_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
