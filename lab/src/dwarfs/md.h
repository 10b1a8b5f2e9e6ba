/* Molecular dynamics by velocity Verlet: particles in a box of 2 or 3 dimensions that attract each
 * other by sin(min(d, pi / 2))^2. The two energies are reduced in each step. */
#ifndef MD_H
#define MD_H

#include "dwarf.h"

struct md {
    size_t n;
    int dimensions, steps;
    /* Of all particles, one after the other. */
    double *position, *velocity, *acceleration, *force;
    double potential, kinetic;
};

/* What: "2d-10" are 2 dimensions and 10 steps. */
struct md md_of(const char *what, size_t n);

/* Some particles at the beginning. */
void md_start(struct md *m, struct part p);
/* Forces on some particles, by the positions of all; adds to both energies. */
void md_forces(struct md *m, struct part p, double *potential, double *kinetic);
/* Moves some particles on by a step. */
void md_move(struct md *m, struct part p);

double md_answer(const struct md *m);

#endif
