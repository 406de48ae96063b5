// What a dashboard may say, by the types of Grafana's frontend; those of panels and of Prometheus' queries are put in where the
// dashboard's own type leaves them open.
import type { AnnotationQuery, Dashboard, DataQuery, FieldConfig, GraphFieldConfig, Panel, RowPanel, TableFieldOptions } from '@grafana/schema';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has no enums, but their values.
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

// Of the package @grafana/prometheus, which needs all of Grafana's frontend.
type Query = DataQuery & { expr: string; legendFormat?: string; instant?: boolean; range?: boolean; format?: 'table' | 'time_series' | 'heatmap' };
type Annotation = AnnotationQuery & { expr: string; titleFormat: string; textFormat: string };

type PanelOf<Type, Options, Custom> = Omit<Panel, 'type' | 'targets' | 'options' | 'fieldConfig'> & {
  type: Type;
  targets: Query[];
  options: Options;
  fieldConfig: { defaults: Omit<FieldConfig, 'custom'> & { custom?: Partial<Custom> }; overrides: [] };
};

type AnyPanel =
  | RowPanel
  | PanelOf<'stat', Stat.Options, never>
  | PanelOf<'table', Table.Options, TableFieldOptions>
  | PanelOf<'timeseries', TimeSeries.Options, GraphFieldConfig>;

export type Checked = Plain<Omit<Dashboard, 'annotations' | 'panels'> & { annotations: { list: Annotation[] }; panels: AnyPanel[] }>;
