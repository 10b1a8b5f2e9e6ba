/* The arithmetic of molecular dynamics: see md.h. */
#include "md.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static const double BOX = 10, STEP = 1e-4;

struct md md_of(const char *what, size_t n) {
    struct md m = {.n = n};
    if (sscanf(what, "%dd-%d", &m.dimensions, &m.steps) != 2 || m.dimensions < 2 ||
        m.dimensions > 3) {
        errno = EINVAL;
        die(what);
    }
    return m;
}

void md_start(struct md *m, struct part p) {
    size_t d = (size_t)m->dimensions;
    for (size_t i = p.from * d; i < p.to * d; i++) {
        double golden = (double)(i + 1) * 0.6180339887498949;
        m->position[i] = BOX * (golden - floor(golden));
        m->velocity[i] = m->acceleration[i] = 0;
    }
}

static void attract(struct md *m, size_t i, size_t j, double *potential) {
    size_t d = (size_t)m->dimensions;
    double apart[3] = {0, 0, 0}, square = 0;
    for (size_t k = 0; k < d; k++) {
        apart[k] = m->position[i * d + k] - m->position[j * d + k];
        square += apart[k] * apart[k];
    }
    double distance = sqrt(square), near = fmin(distance, M_PI_2);
    *potential += 0.5 * sin(near) * sin(near);
    for (size_t k = 0; k < d; k++)
        m->force[i * d + k] -= apart[k] * sin(2 * near) / distance;
}

void md_forces(struct md *m, struct part p, double *potential, double *kinetic) {
    size_t d = (size_t)m->dimensions;
    for (size_t i = p.from; i < p.to; i++) {
        for (size_t k = 0; k < d; k++) {
            m->force[i * d + k] = 0;
            *kinetic += 0.5 * m->velocity[i * d + k] * m->velocity[i * d + k];
        }
        for (size_t j = 0; j < m->n; j++)
            if (j != i)
                attract(m, i, j, potential);
    }
}

void md_move(struct md *m, struct part p) {
    size_t d = (size_t)m->dimensions;
    for (size_t i = p.from * d; i < p.to * d; i++) {
        m->position[i] += m->velocity[i] * STEP + 0.5 * STEP * STEP * m->acceleration[i];
        m->velocity[i] += 0.5 * STEP * (m->force[i] + m->acceleration[i]);
        m->acceleration[i] = m->force[i];
    }
}

double md_answer(const struct md *m) {
    return checksum(m->position, m->n * (size_t)m->dimensions) + m->potential + m->kinetic;
}
