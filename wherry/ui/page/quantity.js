// Quantities of Kubernetes as numbers.

const FACTORS = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Return a quantity's number, 0 for what is none. */
export function number(quantity) {
  const match = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]i?|)$/.exec(String(quantity ?? ""));
  const found = match ? Number(match[1]) * (FACTORS[match[2]] ?? NaN) : 0;
  return Number.isFinite(found) ? found : 0;
}

/** Return CPUs as text: 250m, 1.5. */
export function cpus(value) {
  return value < 1 && value > 0 ? `${Math.round(value * 1000)}m` : String(Math.round(value * 100) / 100);
}

/** Return bytes as text: 512Mi, 1.5Gi. */
export function bytes(value) {
  for (const unit of ["Ti", "Gi", "Mi", "Ki"]) {
    if (value >= FACTORS[unit]) return `${Math.round((value / FACTORS[unit]) * 10) / 10}${unit}`;
  }
  return String(Math.round(value));
}
