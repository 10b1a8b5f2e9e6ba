/* DGEMM by blocks, as ATLAS generates it, with the parameters that it tunes. The file is compiled
 * as a library that has BLAS's dgemm_, and by kernel_tuner, which calls tuned(). (It compiles
 * whatever has no extern "C" in it as C++.)
 *
 *   NB          columns of A, rows of B and columns of B that a block has: the L1 cache holds a
 * block of B MU, NU      a tile of C in registers: MU vectors by NU columns KU          steps
 * through a block that are unrolled VW          doubles in a vector: 1, 2, 4 (AVX2) or 8 (AVX-512)
 *   MA          whether a product and a sum are one operation (FMA)
 *   LAT         operations between a product and the sum that takes it, where they are two
 *   cache_edge  bytes of the L2 cache that a block of A may have; 0: as many rows as NB, for L1
 * alone
 */
#ifndef NB
#define NB 64
#define MU 2
#define NU 4
#define KU 4
#define VW 2
#define MA 0
#define LAT 0
#endif
#ifndef CACHE_EDGE
#define CACHE_EDGE 262144
#endif

#if VW == 8
#pragma GCC target("avx512f,prefer-vector-width=512")
#elif VW == 4 && !MA
#pragma GCC target("avx2")
#elif MA
#pragma GCC target("avx2,fma")
#endif
#if MA
#pragma GCC optimize("O3", "fp-contract=fast")
#else
#pragma GCC optimize("O3", "fp-contract=off")
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if VW == 1
typedef double vector;
#else
typedef double vector __attribute__((vector_size(VW * 8), aligned(8), may_alias));
#endif
enum { ROWS = MU * VW, TILE = MU * NU };

size_t cache_edge = CACHE_EDGE;

/* An operand: what it has between two rows, and between two columns. */
struct matrix {
    const double *at;
    size_t row, column;
};

static size_t up_to(size_t n, size_t step) { return (n + step - 1) / step * step; }
static size_t less(size_t a, size_t b) { return a < b ? a : b; }

/* The rows of A's block: panels of ROWS rows, column after column, filled up with zeros. */
static void pack_a(double *to, struct matrix a, size_t m, size_t k, size_t deep, double alpha) {
    for (size_t i = 0; i < m; i += ROWS)
        for (size_t l = 0; l < deep; l++)
            for (size_t r = 0; r < ROWS; r++)
                *to++ = i + r < m && l < k ? alpha * a.at[(i + r) * a.row + l * a.column] : 0;
}

/* The same of B: panels of NU columns, row after row. */
static void pack_b(double *to, struct matrix b, size_t n, size_t k, size_t deep) {
    for (size_t j = 0; j < n; j += NU)
        for (size_t l = 0; l < deep; l++)
            for (size_t c = 0; c < NU; c++)
                *to++ = j + c < n && l < k ? b.at[l * b.row + (j + c) * b.column] : 0;
}

/* A tile of the product of two panels. All of its loops are unrolled, so that its arrays are
 * registers. */
static inline __attribute__((always_inline)) void steps(vector sum[TILE], const double *a,
                                                        const double *b) {
#if LAT
    vector product[LAT];
#endif
#pragma GCC unroll 64
    for (int u = 0; u < KU; u++)
#pragma GCC unroll 16
        for (int j = 0; j < NU; j++)
#pragma GCC unroll 16
            for (int i = 0; i < MU; i++) {
                const vector x = ((const vector *)(a + u * ROWS))[i];
#if LAT
                const int at = (u * NU + j) * MU + i;
                if (at >= LAT)
                    sum[(at - LAT) % TILE] += product[at % LAT];
                product[at % LAT] = x * b[u * NU + j];
#else
                sum[j * MU + i] += x * b[u * NU + j];
#endif
            }
#if LAT
#pragma GCC unroll 64
    for (int at = KU * TILE - LAT; at < KU * TILE; at++)
        sum[at % TILE] += product[at % LAT];
#endif
}

static void tile(size_t deep, const double *a, const double *b, double *c, size_t ldc, size_t m,
                 size_t n) {
    vector sum[TILE];
    memset(sum, 0, sizeof sum);
    for (size_t l = 0; l < deep; l += KU, a += KU * ROWS, b += KU * NU)
        steps(sum, a, b);
    double out[TILE * VW];
    memcpy(out, sum, sizeof out);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++)
            c[i + j * ldc] += out[j * ROWS + i];
}

static void multiply(size_t m, size_t n, size_t deep, const double *a, const double *b, double *c,
                     size_t ldc) {
    for (size_t j = 0; j < n; j += NU)
        for (size_t i = 0; i < m; i += ROWS)
            tile(deep, a + i * deep, b + j * deep, c + i + j * ldc, ldc, less(m - i, ROWS),
                 less(n - j, NU));
}

/* How many rows of A a block has: it and as much of B and C share the edge. */
static size_t rows_of_a_block(void) {
    size_t rows = cache_edge / 2 / (NB * sizeof(double));
    return up_to(rows > NB ? rows : NB, ROWS);
}

static void *memory(size_t doubles) {
    void *found = aligned_alloc(64, up_to(doubles * sizeof(double), 64));
    if (found == NULL)
        abort();
    return found;
}

static void blocks(size_t m, size_t n, size_t k, double alpha, struct matrix a, struct matrix b,
                   double beta, double *c, size_t ldc) {
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++)
            c[i + j * ldc] = beta == 0 ? 0 : beta * c[i + j * ldc];
    const size_t rows = rows_of_a_block(), columns = up_to(NB, NU), most = up_to(NB, KU);
    double *of_a = memory(less(rows, up_to(m, ROWS)) * most),
           *of_b = memory(up_to(n + columns, NU) * most);
    for (size_t l = 0; l < k; l += NB) {
        const size_t there = less(k - l, NB), deep = up_to(there, KU);
        pack_b(of_b, (struct matrix){b.at + l * b.row, b.row, b.column}, n, there, deep);
        for (size_t i = 0; i < m; i += rows) {
            const size_t high = less(m - i, rows);
            const double *first = a.at + i * a.row + l * a.column;
            pack_a(of_a, (struct matrix){first, a.row, a.column}, high, there, deep, alpha);
            for (size_t j = 0; j < n; j += columns)
                multiply(high, less(n - j, columns), deep, of_a, of_b + j * deep, c + i + j * ldc,
                         ldc);
        }
    }
    free(of_a);
    free(of_b);
}

static struct matrix operand(const double *at, int ld, char transposed) {
    const size_t between = (size_t)ld;
    return transposed == 'N' ? (struct matrix){at, 1, between} : (struct matrix){at, between, 1};
}

/* As BLAS has it. */
void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc) {
    blocks((size_t)*m, (size_t)*n, (size_t)*k, *alpha, operand(a, *lda, *transa),
           operand(b, *ldb, *transb), *beta, c, (size_t)*ldc);
}

/* For the tuner: milliseconds of C = A B. */
float tuned(double *c, const double *a, const double *b, int n) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const double one = 1, zero = 0;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (float)((double)(to.tv_sec - from.tv_sec) * 1e3 +
                   (double)(to.tv_nsec - from.tv_nsec) / 1e6);
}
